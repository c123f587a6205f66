import PenstockCall
import PenstockChannel
import PenstockWire

// The choice of an endpoint for an attempt if the channel has a picker, if the attempt's request has a wish,
// or if hops of its call have on_pick. Other attempts do not use this code.
//
// ```
// attempt --> asking --> at the end of the turn: an endpoint --> its connection's next stream
//               ^                                none of those that are ready --> fails (`NoChoice`), or parked
//               |                                none is ready --> waits in the channel's queue
//               +-- the endpoints have changed, or a slot came free
// ```
// User code runs at the end of a turn only, so never within a step of a call.

extension ChannelCore {
  /// Puts the attempt into `asking`: its endpoint is chosen at the end of the turn.
  @inline(never) @_optimize(size)
  func ask(_ attempt: Attempt) {
    asking.append(attempt)
    work.schedule(self)
  }

  /// Called when the endpoints have changed, or a slot came free: asks again for the parked attempts.
  @inline(never) @_optimize(size)
  func retry(_ event: BalancerEvent) {
    if case .wanted = event { return }
    askAgain()
  }

  private func askAgain() {
    while let attempt = parked.popFirst() {
      attempt.notesWait(for: .nothing)
      ask(attempt)
    }
  }

  /// Makes `picker` choose the endpoint of each attempt from now on; nil: the balancer chooses again.
  @inline(never) @_optimize(size)
  func set(_ picker: Picker?) {
    guard closedBecause == nil else { return }
    runtime.refreshNow()
    let usedAll = usesAllEndpoints
    let former = self.picker
    self.picker = picker
    askAgain()
    if usesAllEndpoints != usedAll { changeBalancer(hasNames: false) }
    // The former picker is released last, because its finalizer is user code.
    withExtendedLifetime(former) {}
  }

  /// Called at the end of a turn: chooses endpoints for the attempts in `asking`.
  @inline(never) @_optimize(size)
  func placeAll() {
    parked.sweep()
    for _ in 0..<asking.count {
      guard let attempt = asking.popFirst() else { break }
      place(attempt)
    }
    serve()
  }

  /// Called when slots have come free. The attempts in `waiting` get them first one time, and those in
  /// `asking` the next time, so that neither kind starves.
  @inline(never) @_optimize(size)
  func serveByTurns() {
    askedFirst.toggle()
    if !askedFirst { serve() }
  }

  @inline(never) @_optimize(size)
  private func place(_ attempt: Attempt) {
    guard let call = attempt.owner else { return }
    guard lack == .slot else {
      attempt.notesWait(for: lack)
      return waiting.append(attempt)
    }
    // This is a copy, because `lackSlot` may change the channel's list of endpoints.
    let endpoints = endpoints
    let wish = call.request.wish
    var open = readyEndpoints(wish)
    // While all endpoints are full, neither the picker nor hops are asked. Otherwise each slot that comes
    // free would make them run for every attempt.
    var isFull = !open.isEmpty && !open.contains { endpoints[$0].hasSlot }
    if isFull {
      for index in open { _ = endpoints[index].lackSlot(grows: true) }
      open = []
    }
    var refused = 0
    while !open.isEmpty {
      var index = turn(among: open)
      if let picker {
        let answer = picker.pick(among: open, of: endpoints, for: call)
        guard goesOn(attempt, call) else { return }
        switch answer {
        case .endpoint(let picked): index = picked
        case .wait: return park(attempt)
        case .fail(let status): return attempt.finish(status)
        }
      }
      let endpoint = endpoints[open.remove(at: index)]
      guard endpoint.hasSlot else {
        _ = endpoint.lackSlot(grows: true)
        if picker != nil { return park(attempt) }
        isFull = true
        continue
      }
      offered = endpoint.endpoint
      let isTaken = call.accepts()
      offered = nil
      guard goesOn(attempt, call) else { return }
      if !isTaken { refused += 1 } else if endpoint.open(attempt) { return } else { isFull = true }
    }
    switch NoChoice.decide(full: isFull, refused: refused, mayComeUp: mayComeUp(for: call.request)) {
    case .wait: park(attempt)
    case .failsUnmet:
      let words = ByteBuffer().say("no ready endpoint has ")
      if let wish { words.say(wish.name.view).say("=").say(ByteView(rebasing: wish.value.view.dropLast())) }
      attempt.finish(Status(.unavailable, words: words))
    case .failsRefused(let count):
      let words = ByteBuffer().say("interceptors have refused every endpoint that is ready: ").say(count)
      attempt.finish(Status(.unavailable, words: words))
    }
  }

  @inline(never) @_optimize(size)
  private func park(_ attempt: Attempt) {
    attempt.notesWait(for: .endpoint)
    parked.append(attempt)
  }

  /// Called after user code has run, which may have cancelled the call: carries out such a cancel before
  /// anything is sent. Returns whether the attempt still waits.
  @inline(never) @_optimize(size)
  private func goesOn(_ attempt: Attempt, _ call: Call) -> Bool {
    call.runPostedEarly()
    return attempt.isWaiting
  }

  /// The position in `open` of the endpoint whose turn it is. `open` has indices of the channel's endpoints.
  @inline(never) @_optimize(size)
  private func turn(among open: [Int]) -> Int {
    // If `open` has few of all endpoints, the balancer may choose many others before it chooses one of them.
    for _ in 0..<256 {
      // Endpoints that were asked for slots may have failed, so that the balancer has none to choose any
      // more.
      guard open.count > 1, pick == .choose else { return 0 }
      if let index = open.firstIndex(of: balancer.choose()) { return index }
    }
    return Int(runtime.platform.random() % UInt64(open.count))
  }

  /// The indices of the ready endpoints that meet the wish. If there is no wish, or if none meets it and it
  /// is not required: the indices of all ready endpoints.
  @inline(never) @_optimize(size)
  func readyEndpoints(_ wish: EndpointWish?) -> [Int] {
    let all = balancer.choices
    guard let wish else { return all }
    let wished = all.filter { endpoints[$0].endpoint.meets(wish) }
    return wish.isRequired || !wished.isEmpty ? wished : all
  }

  /// Whether an endpoint that is not ready now, and that the request accepts, may become ready.
  @inline(never) @_optimize(size)
  func mayComeUp(for request: Request) -> Bool {
    guard usesAllEndpoints else { return false }
    for endpoint in endpoints
    where NoChoice.mayComeUp(endpoint.stickyConnectivity, waits: request.settings.waitsForReady) {
      guard let wish = request.wish, wish.isRequired, !endpoint.endpoint.meets(wish) else { return true }
    }
    return false
  }
}
