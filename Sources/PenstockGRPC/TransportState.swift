#if GRPCSwift
  /// The state of a transport: whether it takes streams, those that are open, and who waits for their end.
  struct TransportState {
    private enum Connection {
      /// `connect()` was not called.
      case awaited
      /// `connect()` runs, and waits if there is a continuation.
      case running(CheckedContinuation<Void, Never>?)
      /// `connect()` has returned, or will do so at once.
      case over
    }

    /// The part of a step that is done outside of the lock.
    struct Rest {
      /// Resumes the task in `connect()`.
      var waiter: CheckedContinuation<Void, Never>?
      /// The streams that end with the transport.
      var cancelled: [ClientStream] = []
      /// Whether the last stream has gone, and no other will come.
      var isEnd = false
    }

    private var connection = Connection.awaited
    private var isClosing = false
    private var streams: [UInt64: ClientStream] = [:]
    private var lastID: UInt64 = 0

    private var isOver: Bool { isClosing && streams.isEmpty }

    /// Begins `connect()`. False: it was called before.
    mutating func connect() -> Bool {
      switch connection {
      case .awaited:
        connection = .running(nil)
        return true
      case .running, .over: return false
      }
    }

    /// Keeps the continuation of `connect()` until the end. False: the end has come.
    mutating func wait(_ continuation: CheckedContinuation<Void, Never>) -> Bool {
      switch connection {
      case .awaited, .running:
        connection = isOver ? .over : .running(continuation)
        return !isOver
      case .over: return false
      }
    }

    /// Adds a stream; nil: the transport takes none any more.
    mutating func open(_ stream: ClientStream) -> UInt64? {
      if isClosing { return nil }
      lastID += 1
      streams[lastID] = stream
      return lastID
    }

    /// Removes a stream that has ended.
    mutating func close(_ id: UInt64) -> Rest {
      let isLast = streams.removeValue(forKey: id) != nil && isOver
      return isLast ? end() : Rest()
    }

    /// Takes no more streams.
    mutating func shutDown() -> Rest {
      if isClosing { return Rest() }
      isClosing = true
      return isOver ? end() : Rest()
    }

    /// Ends everything: the task in `connect()` was cancelled.
    mutating func cancel() -> Rest {
      isClosing = true
      let cancelled = Array(streams.values)
      streams = [:]
      var rest = end()
      rest.cancelled = cancelled
      connection = .over
      return rest
    }

    private mutating func end() -> Rest {
      switch connection {
      case .running(let waiter?):
        connection = .over
        return Rest(waiter: waiter, isEnd: true)
      case .awaited, .running, .over: return Rest(isEnd: true)
      }
    }
  }
#endif
