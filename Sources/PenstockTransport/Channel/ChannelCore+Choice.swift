import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLoop
import PenstockHTTP

// The choice of an endpoint for an attempt in these cases: the channel has a picker, the attempt's request
// has an endpoint wish (`EndpointWish`), or hops of the call have an `on_pick` callback. Other attempts do
// not use this code.
//
// ```
// attempt --> asking --> at the end of the turn: an endpoint --> its connection's next stream
//               ^                                no ready endpoint suits --> fails (`NoChoice`), or parked
//               |                                no endpoint is ready --> waits in the channel's queue
//               +-- the endpoints have changed, or a stream can be opened
// ```
//
// User code runs only at the end of a turn of the event loop, so never within a step of a call.

extension ChannelCore {
  /// Puts the attempt into `asking`: its endpoint is chosen at the end of the present turn of the event loop.
  public func ask(_ attempt: Attempt) {
    asking.append(attempt)
    work.schedule(self)
  }

  /// Called when the endpoints have changed, or when a further stream can be opened. Moves the parked
  /// attempts back to `asking`.
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

  /// Makes `picker` choose the endpoint of each attempt from now on; nil: the load balancer chooses again.
  public func set(_ picker: Picker?) {
    guard closedBecause == nil else { return }
    runtime.refreshNow()
    let usedAll = usesAllEndpoints
    let former = self.picker
    self.picker = picker
    askAgain()
    if usesAllEndpoints != usedAll { changeBalancer(hasNames: false) }
    // The former picker is released last, because its release may run user code.
    withExtendedLifetime(former) {}
  }

  /// Called at the end of a turn of the event loop. Chooses endpoints for the attempts in `asking`.
  func placeAll() {
    parked.sweep()
    for _ in 0..<asking.count {
      guard let attempt = asking.popFirst() else { break }
      place(attempt)
    }
    serve()
  }

  /// Called when further streams can be opened. The attempts in `waiting` and those in `asking` are served
  /// first in turns, so that neither list starves.
  func serveByTurns() {
    askedFirst.toggle()
    if !askedFirst { serve() }
  }

  private func place(_ attempt: Attempt) {
    guard let call = attempt.owner else { return }
    guard lack == .slot else {
      guard admits(attempt) else { return }
      attempt.notesWait(for: lack)
      return waiting.append(attempt)
    }
    // The list is copied, because `lackSlot` may change the channel's list of endpoints.
    let endpoints = endpoints
    let wish = call.request.wish
    var open = readyEndpoints(wish)
    // While no endpoint can open a stream, neither the picker nor the hops are asked. Otherwise they would
    // run for every waiting attempt each time that a stream ends.
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

  private func park(_ attempt: Attempt) {
    guard admits(attempt) else { return }
    attempt.notesWait(for: .endpoint)
    parked.append(attempt)
  }

  /// Called after user code has run, which may have cancelled the call. Carries out such a cancel before any
  /// byte is sent. Returns whether the attempt still waits.
  private func goesOn(_ attempt: Attempt, _ call: Call) -> Bool {
    call.runPostedEarly()
    return attempt.isWaiting
  }

  /// Asks the load balancer which endpoint is next. Returns its position in `open`, which has indices of the
  /// channel's endpoints.
  private func turn(among open: [Int]) -> Int {
    // If `open` has only few of the endpoints, the balancer may name many other endpoints before it names one
    // of `open`. So the loop is limited.
    for _ in 0..<256 {
      // Endpoints may have failed since then, so that the balancer has no endpoint to choose any more.
      guard open.count > 1, pick == .choose else { return 0 }
      if let index = open.firstIndex(of: balancer.choose()) { return index }
    }
    return Int(runtime.platform.random() % UInt64(open.count))
  }

  /// The indices of the ready endpoints that match the wish. All ready endpoints if there is no wish, or if
  /// no endpoint matches and the wish is not required.
  func readyEndpoints(_ wish: EndpointWish?) -> [Int] {
    let all = balancer.choices
    guard let wish else { return all }
    let wished = all.filter { endpoints[$0].endpoint.meets(wish) }
    return wish.isRequired || !wished.isEmpty ? wished : all
  }

  /// Whether an endpoint that the request accepts is not ready now, but may become ready.
  func mayComeUp(for request: Request) -> Bool {
    guard usesAllEndpoints else { return false }
    for endpoint in endpoints
    where NoChoice.mayComeUp(endpoint.stickyConnectivity, waits: request.settings.waitsForReady) {
      guard let wish = request.wish, wish.isRequired, !endpoint.endpoint.meets(wish) else { return true }
    }
    return false
  }
}
