import PenstockCall
import PenstockChannel
import PenstockWire

// The endpoint of each attempt that has a say in the choice: the channel has a picker, its request has a wish, or hops of
// its call have on_pick. Other attempts know nothing of it.
//
// ```
// attempt --> asking --> at the end of the turn: an endpoint --> its connection's next stream
//               ^                                none of those that are ready --> fails (`NoChoice`), or parked
//               |                                none is ready --> waits in the channel's queue
//               +-- the endpoints have changed, or a slot came free
// ```
// User code runs at the end of a turn only, so never within a step of a call.

extension ChannelCore {
  /// Finds an endpoint for the attempt, at the end of the turn.
  @inline(never) @_optimize(size)
  func ask(_ attempt: Attempt) {
    asking.append(attempt)
    work.schedule(self)
  }

  /// The endpoints have changed, or a slot came free: asks again for the attempts for which none would do.
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

  /// Lets `picker` choose the endpoint of each attempt from now on; nil: the balancer chooses again.
  @inline(never) @_optimize(size)
  func set(_ picker: Picker?) {
    guard closedBecause == nil else { return }
    runtime.refreshNow()
    let usedAll = usesAllEndpoints
    let former = self.picker
    self.picker = picker
    askAgain()
    if usesAllEndpoints != usedAll { changeBalancer(hasNames: false) }
    // It goes last, since its finalizer is user code.
    withExtendedLifetime(former) {}
  }

  /// The end of a turn: finds endpoints for the attempts that ask.
  @inline(never) @_optimize(size)
  func placeAll() {
    parked.sweep()
    for _ in 0..<asking.count {
      guard let attempt = asking.popFirst() else { break }
      place(attempt)
    }
    serve()
  }

  /// Slots have come free. The attempts in `waiting` and those in `asking` take turns in coming first, so that neither
  /// kind starves.
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
    // Asking an endpoint for a slot may bring news, and so change the channel's list.
    let endpoints = endpoints
    let wish = call.request.wish
    var open = readyEndpoints(wish)
    // While all are full, picker and hops are not asked: else each free slot would ask for every attempt.
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

  /// Whether the attempt still waits after user code has run, which may have cancelled the call: that is carried out now,
  /// before anything is sent.
  @inline(never) @_optimize(size)
  private func goesOn(_ attempt: Attempt, _ call: Call) -> Bool {
    call.runPostedEarly()
    return attempt.isWaiting
  }

  /// The position, in this list of indices, of the endpoint whose turn it is.
  @inline(never) @_optimize(size)
  private func turn(among open: [Int]) -> Int {
    // If few of all endpoints are in question, their turns may be far apart, by weight even very far.
    for _ in 0..<256 {
      // News of endpoints that were asked for slots may have left none to choose from.
      guard open.count > 1, pick == .choose else { return 0 }
      if let index = open.firstIndex(of: balancer.choose()) { return index }
    }
    return Int(runtime.platform.random() % UInt64(open.count))
  }

  /// The indices of the endpoints that are ready: those that meet the wish, or all if there are none and it is not required.
  @inline(never) @_optimize(size)
  func readyEndpoints(_ wish: EndpointWish?) -> [Int] {
    let all = balancer.choices
    guard let wish else { return all }
    let wished = all.filter { endpoints[$0].endpoint.meets(wish) }
    return wish.isRequired || !wished.isEmpty ? wished : all
  }

  /// Whether an endpoint that is not ready may become so, and would do for the request.
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
