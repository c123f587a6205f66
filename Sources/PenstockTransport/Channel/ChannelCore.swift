import PenstockCall
import PenstockChannel
import PenstockWire

/// The driving thread's side of a channel: its attempts, the names and endpoints that its balancer asks for, and the
/// attempts that wait for a pick, or for a slot on the connection that was picked.
///
/// ```
/// attempt --> pick: endpoint --> its connection's next stream; without a slot: waits here
///                   wait ------> waits here, until the balancer says "serve" or "fail"
///                   fail ------> fails
/// ```
/// As a timer it limits the time for resolving names.
final class ChannelCore: Timer, ShutdownHook, TurnTask, ResolverCompletion {
  let runtime: Runtime
  let defaults: RequestDefaults
  let destination: Destination
  let work: TurnWork
  /// The reason for which the channel was closed; nil: it is open.
  private(set) var closedBecause: Closing?
  private var attempts: [Attempt] = []
  private var isHooked = false

  private enum Names { case unresolved, resolving, known }

  private let resolver: Resolver
  private var names = Names.unresolved
  private var balancer: Balancer
  /// The endpoints of the addresses that came last.
  private var endpoints: [Subchannel] = []
  /// Endpoints of earlier addresses, whose connections drain.
  private var leaving: [Subchannel] = []
  /// Attempts that wait for a pick, or for a slot.
  private(set) var waiting = WaitQueue<Attempt>()
  var isScheduled = false
  private var report = ConnectReport()
  private var nameless = ByteBuffer()

  init(_ runtime: Runtime, _ defaults: RequestDefaults, _ destination: Destination, _ resolver: Resolver) {
    self.runtime = runtime
    self.defaults = defaults
    self.destination = destination
    self.resolver = resolver
    work = TurnWork(runtime)
    balancer = .pickFirst(PickFirst(timeout: destination.connectTimeout))
    super.init()
  }

  func begin(_ attempt: Attempt) {
    if !isHooked, closedBecause == nil {
      isHooked = true
      runtime.onShutdown(self)
    }
    attempt.listIndex = attempts.count
    attempts.append(attempt)
  }

  /// Whether the channel is less private than the call's settings demand.
  func isTooOpen(_ settings: CallSettings) -> Bool {
    settings.credentials != nil || settings.privacy.rawValue > defaults.privacy.rawValue
  }

  func end(_ attempt: Attempt) {
    guard attempt.listIndex >= 0 else { return }
    let last = attempts.removeLast()
    if attempt.listIndex < attempts.count {
      attempts[attempt.listIndex] = last
      last.listIndex = attempt.listIndex
    }
    attempt.listIndex = -1
  }

  // MARK: Where an attempt goes

  /// Gives `attempt` a connection, or tells it a failure; a failure is never told from within this function.
  @inline(never)
  func attach(_ attempt: Attempt) {
    if waiting.isEmpty, case .endpoint(let index) = balancer.pick,
      borrow(endpoints[index], { $0.open(attempt) })
    {
      return
    }
    wait(attempt)
  }

  @inline(never) @_optimize(size)
  private func wait(_ attempt: Attempt) {
    waiting.append(attempt)
    if balancer.isIdle { return work.schedule(self) }
    if case .fail = balancer.pick { work.schedule(self) }
  }

  /// An attempt without a stream has ended, and does not wait any more.
  @inline(never) @_optimize(size)
  func forgetWaiting() { waiting.forget() }

  /// Whether there is a connection, so that attempts that wait do so for a slot.
  var isReady: Bool {
    if case .endpoint = balancer.pick { return true }
    return false
  }

  /// Wakes the balancer, if an attempt still waits.
  @inline(never) @_optimize(size)
  func runInTurn() {
    waiting.sweep()
    guard !waiting.isEmpty else { return }
    runtime.refreshNow()
    follow(.wanted)
  }

  /// Tells the balancer of an event, and carries out its decisions. Events that result at once are told to it
  /// afterwards and not recursively, as there may be hundreds of addresses that can't be connected to.
  @inline(never) @_optimize(size)
  private func follow(_ event: BalancerEvent) {
    var next: BalancerEvent? = event
    while let event = next.take() {
      var actions = balancer.handle(event, now: runtime.now)
      while let action = actions.next() {
        switch action {
        case .resolve(let until): resolve(until)
        case .connect(let index, let until):
          if let news = endpoints[index].connect(until: until) { next = .endpoint(index, news) }
        case .serve: serve()
        case .fail(let why): fail(why)
        }
      }
    }
    if balancer.isIdle, !waiting.isEmpty { work.schedule(self) }
  }

  /// Serves the attempts that wait; those that find no slot go on waiting.
  @inline(never) @_optimize(size)
  private func serve() {
    while !waiting.isEmpty, case .endpoint(let index) = balancer.pick, endpoints[index].hasSlot {
      if let attempt = waiting.popFirst() { _ = endpoints[index].open(attempt) }
    }
  }

  @inline(never) @_optimize(size)
  private func fail(_ why: BalancerAction.Why) {
    let words: ByteBuffer
    switch why {
    case .nameless: words = nameless
    case .unconnected(let plan): words = report.words(destination.name, plan)
    case .closed: words = ByteBuffer().say("the channel is closed")
    }
    // Calls that begin while these fail wait in a new queue.
    var all = waiting
    waiting = WaitQueue()
    while let attempt = all.popFirst() { attempt.connectFailed(words) }
  }

  // MARK: Names

  @inline(never) @_optimize(size)
  private func resolve(_ until: UInt64) {
    report = ConnectReport()
    names = .resolving
    resolver.start(self)
    if names == .resolving { arm(self, at: until) }
  }

  @inline(never) @_optimize(size)
  func resolved(_ outcome: ResolverOutcome) {
    guard names == .resolving else { return }
    disarm(self)
    switch outcome {
    case .addresses(let list):
      names = .known
      for old in endpoints where old.isInUse { leaving.append(old) }
      endpoints = []
      while endpoints.count < list.count {
        endpoints.append(Subchannel(list[endpoints.count], endpoints.count, self))
      }
      follow(.named(list.count))
    case .failed(let words):
      failNames(
        ByteBuffer().say("the name of ").say(destination.name.view).say(" does not resolve: ").say(words))
    }
  }

  @inline(never) @_optimize(size)
  private func failNames(_ words: ByteBuffer) {
    names = .unresolved
    nameless = words
    follow(.nameless)
  }

  @inline(never) @_optimize(size)
  override func fire() {
    guard names == .resolving else { return }
    resolver.stop()
    failNames(ByteBuffer().say("the name of ").say(destination.name.view).say(" did not resolve in time"))
  }

  // MARK: News from a subchannel

  @inline(never) @_optimize(size)
  func failed(_ address: SocketAddress, _ words: ByteBuffer) {
    report.failed(ByteBuffer().say(address.text()), words)
  }

  /// An endpoint has news. `words`: the reason why its connection has left.
  @inline(never) @_optimize(size)
  func hears(_ news: EndpointNews, _ subchannel: Subchannel, _ words: ByteBuffer?) {
    guard subchannel.endpointIndex < endpoints.count, endpoints[subchannel.endpointIndex] === subchannel
    else { return }
    if news == .left, let words { loseSlots(words) }
    follow(.endpoint(subchannel.endpointIndex, news))
  }

  @inline(never) @_optimize(size)
  private func loseSlots(_ words: ByteBuffer) {
    waiting.forEach { $0.loseSlot(words) }
  }

  /// The last draining connection of an earlier endpoint has ended.
  @inline(never) @_optimize(size)
  func isDone(_ subchannel: Subchannel) { leaving.drop(subchannel) }

  // MARK: Timers

  @inline(never) @_optimize(size)
  func arm(_ timer: Timer, at time: UInt64) { runtime.arm(timer, at: time) }

  @inline(never) @_optimize(size)
  func disarm(_ timer: Timer) { runtime.disarm(timer) }

  // MARK: The end

  func runtimeShutdown(_ why: Closing) {
    isHooked = false
    close(why)
  }

  @inline(never) @_optimize(size)
  func close(_ why: Closing) {
    guard closedBecause == nil else { return }
    closedBecause = why
    if isHooked {
      isHooked = false
      runtime.removeShutdownHook(self)
    }
    let all = attempts
    for attempt in all { attempt.finish(why.status) }
    waiting = WaitQueue()
    if names == .resolving { resolver.stop() }
    names = .unresolved
    disarm(self)
    _ = balancer.handle(.close, now: runtime.now)
    let known = endpoints
    let left = leaving
    endpoints = []
    leaving = []
    for subchannel in known { subchannel.close() }
    for subchannel in left { subchannel.close() }
  }

  @inline(never) @_optimize(size)
  func closeInChild() {
    for subchannel in endpoints { subchannel.closeInChild() }
    for subchannel in leaving { subchannel.closeInChild() }
  }
}
