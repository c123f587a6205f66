extension Chain {
  /// The callbacks of the hops that begin in the run (the top hops, which count together). There is a list
  /// for each event, in the order in which the event visits the hops. A walk through a list does not touch
  /// the hops.
  struct Callbacks {
    struct Entry {
      /// The function to call, with two exceptions. `Call.enter` calls a `create`, not the code that walks
      /// this list. A `destroy` returns nothing, so the result is not used.
      let function: HopCallback
      /// The argument of `function`: the registration's user data. If the interceptor has `create`, the
      /// argument is this entry and `function` is `callWithState`, which finds the hop's state. So the
      /// entries of other interceptors need no test for `create`.
      let userData: UnsafeMutableRawPointer?
      /// The interceptor's own function, which `callWithState` calls with the hop's state.
      private let own: HopCallback
      /// The registration's number and the event, packed for `CallWatch`.
      let name: UInt64
      let kind: EventKind
      @Small var index: Int

      fileprivate init(
        _ function: HopCallback, _ registration: Registration, _ kind: EventKind, _ index: Int,
        at entry: UnsafeMutablePointer<Entry>
      ) {
        let hasState = registration.callbacks.pointee.create != nil
        self.function = hasState ? { Entry.callWithState($0, $1) } : function
        userData = hasState ? UnsafeMutableRawPointer(entry) : registration.userData.pointer
        own = function
        name = CallWatch.name(registration.id, kind)
        self.kind = kind
        self.index = index
      }

      private static func callWithState(_ handle: OpaquePointer?, _ entry: UnsafeMutableRawPointer?) -> Int32
      {
        let hop = Unmanaged<Hop>.fromOpaque(UnsafeRawPointer(handle.unsafelyUnwrapped))
        let state = hop._withUnsafeGuaranteedRef { $0.state }
        return entry.unsafelyUnwrapped.assumingMemoryBound(to: Entry.self).pointee.own(handle, state)
      }
    }

    struct List {
      var first: UnsafePointer<Entry>
      fileprivate(set) var end: UnsafePointer<Entry>
      var isEmpty: Bool { first == end }

      /// The entries of the hops above the hop at `index`; the list may be for events that go down or up.
      func above(_ index: Int) -> List {
        var some = self
        while !some.isEmpty, some.first.pointee.index >= index { some.first += 1 }
        while !some.isEmpty, (some.end - 1).pointee.index >= index { some.end -= 1 }
        return some
      }

      /// The entries of the hop at `index` and of the hops below it. Only for a list of events that go down.
      func from(_ index: Int) -> List {
        var some = self
        while !some.isEmpty, some.first.pointee.index < index { some.first += 1 }
        return some
      }
    }

    /// The number of hops that begin in the `Run`. The run ends above the first hop that may RESTART, has an
    /// executor, or has on_pick.
    let runLength: Int
    let hasCreate: Bool
    /// Whether any hop of the chain has on_pick.
    let hasPick: Bool
    /// Whether the list `start` has only on_start callbacks, neither `create` nor on_demand.
    let startsPlainly: Bool
    /// Whether the list `start` has only on_start callbacks, and no callback of the `Run` sees request
    /// messages or the half-close.
    let passesMessages: Bool
    /// The callbacks for start, hop by hop: `create`, then on_start, then on_demand for the demand that goes with
    /// start.
    let start: List
    let send: List
    let halfClose: List
    let headers: List
    let receive: List
    let status: List
    let demand: List
    let sent: List
    let destroy: List

    init(_ entries: [Chain.Entry]) {
      var runLength = 0
      while runLength < entries.count {
        let entry = entries[runLength]
        if entry.records || entry.registration.hasExecutors || entry.looksAtPicks { break }
        runLength += 1
      }
      self.runLength = runLength
      hasPick = entries[runLength...].contains { $0.looksAtPicks }
      var filler = Filler(entries, runLength)
      start = filler.list(.start)
      hasCreate = filler.hasCreate
      startsPlainly = filler.startsPlainly
      send = filler.list(.send)
      halfClose = filler.list(.halfClose)
      passesMessages = startsPlainly && send.isEmpty && halfClose.isEmpty
      headers = filler.list(.headers, isUp: true)
      receive = filler.list(.receive, isUp: true)
      status = filler.list(.status, isUp: true)
      demand = filler.list(.demand)
      sent = filler.list(.sent, isUp: true)
      destroy = filler.list(.destroy)
    }

    func deallocate() { start.first.deallocate() }

    private struct Filler {
      let entries: [Chain.Entry]
      let runLength: Int
      var next: UnsafeMutablePointer<Entry>
      var hasCreate = false
      var startsPlainly = true

      init(_ entries: [Chain.Entry], _ runLength: Int) {
        self.entries = entries
        self.runLength = runLength
        // There is room for one entry per field of `Registration.Callbacks`. That suffices: on_demand is in
        // two lists, but on_cancel in none.
        next = .allocate(capacity: max(runLength, 1) * MemoryLayout<Registration.Callbacks>.size / 8)
      }

      mutating func list(_ kind: EventKind, isUp: Bool = false) -> List {
        let first = next
        for offset in 0..<runLength {
          let index = isUp ? runLength - 1 - offset : offset
          if kind == .start { add(.create, index) }
          add(kind, index)
          if kind == .start { add(.demand, index) }
        }
        return List(first: UnsafePointer(first), end: UnsafePointer(next))
      }

      private mutating func add(_ kind: EventKind, _ index: Int) {
        let registration = entries[index].registration
        let callbacks = registration.callbacks.pointee
        let function: HopCallback? =
          switch kind {
          case .create: unsafeBitCast(callbacks.create, to: HopCallback?.self)
          case .start: callbacks.onStart
          case .send: callbacks.onSend
          case .halfClose: callbacks.onHalfClose
          case .headers: callbacks.onHeaders
          case .receive: callbacks.onReceive
          case .status: callbacks.onStatus
          case .demand: callbacks.onDemand
          case .sent: callbacks.onSent
          case .destroy: unsafeBitCast(callbacks.destroy, to: HopCallback?.self)
          // A hop with on_pick is never in the `Run`, so its on_pick needs no entry.
          case .none, .cancel, .pick: nil
          }
        guard let function else { return }
        if kind == .create { hasCreate = true }
        if kind == .create || kind == .demand { startsPlainly = false }
        next.initialize(to: Entry(function, registration, kind, index, at: next))
        next += 1
      }
    }
  }
}
