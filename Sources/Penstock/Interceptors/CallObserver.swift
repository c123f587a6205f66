internal import CPenstock

/// Watches one call, or one attempt of a call, for the products of this package.
///
/// Its functions run on the thread that drives the runtime, one at a time, where nothing may wait. So no event is delayed,
/// and an event needs no task of its own. Those that an observer does not need are not asked for by its interception.
package protocol CallObserver: AnyObject {
  /// The start: header fields may be set.
  func started(_ call: ObservedCall)
  /// An endpoint was picked for the attempt; only for attempts.
  func picked(address: String)
  /// A message goes to the server.
  func sent(bytes: Int)
  /// The response headers have come.
  func headersCame(_ headers: Metadata)
  /// A message comes from the server.
  func received(bytes: Int)
  /// The end, exactly once, also if something else than the server has ended the call.
  func ended(_ status: Status, _ call: ObservedCall)
}

extension CallObserver {
  package func started(_ call: ObservedCall) {}
  package func picked(address: String) {}
  package func sent(bytes: Int) {}
  package func headersCame(_ headers: Metadata) {}
  package func received(bytes: Int) {}
}

/// A call as its observer sees it: valid for as long as the function runs that gets it.
package struct ObservedCall {
  private let hop: OpaquePointer
  init(_ hop: OpaquePointer) { self.hop = hop }

  private var request: OpaquePointer? { penstock_hop_request(hop) }

  /// The number that names the call within the process.
  package var id: UInt64 { penstock_hop_call_id(hop) }
  /// The kind of the call.
  package var kind: CallKind { CallKind(rawValue: penstock_hop_kind(hop)) ?? .unary }
  /// The method, "/package.Service/Method".
  package var method: String { penstock_request_method(request).map { String(cString: $0) } ?? "" }
  /// The target of the channel, as the program gave it.
  package var target: String { penstock_hop_target(hop).map { String(cString: $0) } ?? "" }
  /// The authority that is sent.
  package var authority: String { penstock_request_authority(request).map { String(cString: $0) } ?? "" }
  /// The protocol: "grpc", "grpc-web", "grpc-web-text" or "connect".
  package var rpcProtocol: String { penstock_hop_protocol(hop).map { String(cString: $0) } ?? "" }
  /// How often the request was begun, this time included.
  package var attempt: Int { Int(penstock_hop_attempt(hop)) }
  /// How many attempts by a retry policy came before this one, as the server is told.
  package var previousAttempts: Int {
    var count: UInt32 = 0
    return penstock_request_previous_attempts(request, &count) == PENSTOCK_OK ? Int(count) : 0
  }
  /// Whether the attempt repeats, by the library's own decision, one that the server has certainly not processed.
  package var isTransparentRetry: Bool {
    var isRetry: Int32 = 0
    return penstock_request_is_transparent_retry(request, &isRetry) == PENSTOCK_OK && isRetry != 0
  }
  /// The metadata of the request.
  package var metadata: Metadata { Metadata(penstock_request_metadata(request)) }

  /// Sets a field of the request's metadata, in `started`. A name or a value that HTTP does not allow is left out.
  package func set(_ name: String, _ bytes: [UInt8]) {
    _ = penstock_metadata_set_bytes(penstock_request_metadata(request), name, bytes, bytes.count)
  }

  /// The value that was taken from the task that made the call; nil: no function of this module made it.
  package func value<Value>(of capture: Capture<Value>) -> Value? {
    capture.value(for: UInt(bitPattern: penstock_hop_context(hop)))
  }

  /// The figures of the call so far, over all its attempts.
  package func figures() -> CallFigures {
    var json: UnsafeMutablePointer<CChar>?
    guard penstock_hop_stats_json(hop, &json) == PENSTOCK_OK, let json else { return CallFigures() }
    defer { penstock_free(json) }
    return CallFigures(json: json)
  }
}

/// An observer in its hop. The callbacks of a hop run one at a time.
private final class ObservedHop {
  private let observer: any CallObserver
  private var hasEnded = false

  init(_ observer: any CallObserver) { self.observer = observer }

  func end(_ hop: OpaquePointer, _ status: Status) {
    if hasEnded { return }
    hasEnded = true
    observer.ended(status, ObservedCall(hop))
  }

  /// Calls `body` with the observer behind the state of a hop; the event always goes on.
  static func tell(
    _ hop: OpaquePointer?, _ state: UnsafeMutableRawPointer?,
    _ body: (any CallObserver, OpaquePointer) -> Void
  ) -> Int32 {
    if let hop, let state {
      body(Unmanaged<ObservedHop>.fromOpaque(state).takeUnretainedValue().observer, hop)
    }
    return PENSTOCK_NEXT
  }

  static func end(_ hop: OpaquePointer?, _ state: UnsafeMutableRawPointer?) -> Int32 {
    if let hop, let state {
      let status = Status(penstock_hop_status(hop))
      Unmanaged<ObservedHop>.fromOpaque(state).takeUnretainedValue().end(hop, status)
    }
    return PENSTOCK_NEXT
  }
}

/// The objects that a registration of observers keeps.
private final class ObserverFactory: Sendable {
  let make: @Sendable (ObservedCall) -> any CallObserver
  let hear: (@Sendable (ConnectionEvent) -> Void)?
  let lease: CaptureList.Lease?

  init(
    _ make: @escaping @Sendable (ObservedCall) -> any CallObserver,
    _ hear: (@Sendable (ConnectionEvent) -> Void)?, _ lease: CaptureList.Lease?
  ) {
    self.make = make
    self.hear = hear
    self.lease = lease
  }

  static func of(_ data: UnsafeMutableRawPointer?) -> ObserverFactory? {
    data.map { Unmanaged<ObserverFactory>.fromOpaque($0).takeUnretainedValue() }
  }
}

extension Interception {
  /// Observers, each for one call or for one attempt of a call. They can't delay or change anything but the request's
  /// metadata, and run on the runtime's thread.
  ///
  /// - Parameters:
  ///   - perAttempt: whether each attempt gets an observer, at the place nearest to the server; else each call gets one.
  ///   - events: the events that the observers want to see beside start and end, and pick for attempts.
  ///   - capture: takes a value from the task that makes a call; the observer gets it by ``ObservedCall/value(of:)``.
  ///   - connections: gets the events of the channel's connections.
  ///   - make: makes the observer of a call.
  package static func observing(
    perAttempt: Bool = false, events: InterceptedEvents = [], capture: (any CaptureSource)? = nil,
    connections: (@Sendable (ConnectionEvent) -> Void)? = nil,
    _ make: @escaping @Sendable (ObservedCall) -> any CallObserver
  ) -> Interception {
    Interception { _, captures, _ in
      var table = penstock_interceptor()
      table.struct_size = MemoryLayout<penstock_interceptor>.size
      let lease = capture.map { CaptureList.Lease(captures, $0) }
      table.user_data = Unmanaged.passRetained(ObserverFactory(make, connections, lease)).toOpaque()
      table.finalizer = { data in
        if let data { Unmanaged<ObserverFactory>.fromOpaque(data).release() }
      }
      table.per_attempt = perAttempt ? 1 : 0
      setCallbacks(&table, events, perAttempt)
      if connections != nil {
        table.on_connection = { data, event in
          if let hear = ObserverFactory.of(data)?.hear, let event { hear(ConnectionEvent(event.pointee)) }
        }
      }
      return (PENSTOCK_OK, table)
    }
  }

  private static func setCallbacks(
    _ table: inout penstock_interceptor, _ events: InterceptedEvents, _ perAttempt: Bool
  ) {
    table.create = { hop, data, state in
      guard let hop, let state, let factory = ObserverFactory.of(data) else { return PENSTOCK_SKIP }
      let observer = factory.make(ObservedCall(hop))
      state.pointee = Unmanaged.passRetained(ObservedHop(observer)).toOpaque()
      return PENSTOCK_NEXT
    }
    table.destroy = { hop, state in
      guard let hop, let state else { return }
      let observed = Unmanaged<ObservedHop>.fromOpaque(state).takeRetainedValue()
      observed.end(hop, Status(.cancelled, "the call has ended"))
    }
    table.on_start = { hop, state in
      ObservedHop.tell(hop, state) { $0.started(ObservedCall($1)) }
    }
    table.on_status = { ObservedHop.end($0, $1) }
    table.on_cancel = { ObservedHop.end($0, $1) }
    if perAttempt {
      table.on_pick = { hop, state in
        ObservedHop.tell(hop, state) { observer, hop in
          if let address = penstock_hop_address(hop) { observer.picked(address: String(cString: address)) }
        }
      }
    }
    if events.contains(.request) {
      table.on_send = { ObservedHop.tell($0, $1) { $0.sent(bytes: messageSize($1)) } }
    }
    if events.contains(.headers) {
      table.on_headers = { hop, state in
        ObservedHop.tell(hop, state) { $0.headersCame(Metadata(penstock_hop_metadata($1))) }
      }
    }
    if events.contains(.response) {
      table.on_receive = { ObservedHop.tell($0, $1) { $0.received(bytes: messageSize($1)) } }
    }
  }
}

private func messageSize(_ hop: OpaquePointer) -> Int {
  var length = 0
  _ = penstock_message_bytes(penstock_hop_message(hop), &length)
  return length
}
