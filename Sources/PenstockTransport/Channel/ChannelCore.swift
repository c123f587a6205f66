import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLoop
import PenstockNames
import PenstockLink
import PenstockHTTP
import PenstockFraming

/// The driving thread's side of a channel: its attempts, the names and endpoints that its load balancer asks for, and
/// the attempts that wait. An attempt waits for the balancer's pick, or for a slot: the right to open one more stream
/// on a connection.
///
/// ```
/// attempt --> pick: endpoint --> a stream on its connection; without a slot: waits here
///                   choose ----> likewise, on the endpoint that the balancer names next
///                   wait ------> waits here, until the balancer says "serve" or "fail"
///                   fail ------> fails, unless its `patience` lets it wait here
/// ```
/// As a timer, this object fires at the time for which the balancer has asked.
final class ChannelCore: Timer, ShutdownHook, TurnTask {
  let runtime: Runtime
  var defaults: RequestDefaults
  let destination: Destination
  let work: TurnWork
  let limit: ConnectionLimit
  /// The reason why the channel was closed; nil: it is open.
  private(set) var closedBecause: Closing?
  private(set) var attempts: [Attempt] = []
  var counts = AttemptCounts()
  var handshakes = HandshakeCounts()
  private var isHooked = false

  var names: Names?
  var nameView: NameView {
    names?.view ?? NameView(addresses: 0, isAsking: false, failure: nil, next: nil)
  }
  var balancer: Balancer
  /// The balancer's decision for every attempt. It is valid until the balancer gets its next event.
  var pick = Pick.wait
  /// Events that wait, because the balancer's actions for an earlier event are being carried out.
  var events: [BalancerEvent] = []
  private var isFollowing = false
  /// The endpoints of the most recent addresses.
  var endpoints: [Subchannel] = []
  /// Endpoints of earlier addresses, whose connections close when their last stream has ended.
  var removed: [Subchannel] = []
  /// Attempts that wait for the balancer's pick, or for a slot.
  var waiting = WaitQueue<Attempt>()
  var isScheduled = false
  private(set) var nameless = ByteBuffer()
  let connectivity = ConnectivityCell()
  let methods: CurrentMethods
  /// The listeners to connection events; nil: the channel is closed.
  var listeners: NewsListeners?
  var news = NewsQueue()
  /// The time when the last attempt ended, or when the channel left the state IDLE.
  private var lastUsed: UInt64 = 0
  var idleTimer: ChannelTimer?
  var outlierTimer: ChannelTimer?
  /// The user's function that chooses endpoints; nil: the load balancer chooses.
  var picker: Picker?
  /// The user's functions that open the sockets; nil: the library opens them.
  var connector: ConnectorFunctions?
  /// The user's own check of servers' certificates; nil: there is none.
  var verifier: ServerVerifier?
  /// For ChannelCore+Choice. `asking`: attempts whose endpoint is chosen at the end of this turn. `parked`: attempts
  /// for which no ready endpoint is suitable. `offered`: the endpoint about which hops are being asked.
  var asking = WaitQueue<Attempt>()
  var parked = WaitQueue<Attempt>()
  var offered: Endpoint?
  /// For ChannelCore+Retries: whether any method has a retry policy that applies, the limit on retries and hedging while
  /// most requests fail, and whether there is either, so that the end of each attempt is to be noted.
  var hasRetries = false
  var notesEnds = false
  var throttle: RetryThrottle?
  /// Whether `asking` was served before `waiting` the last time. The order changes each time.
  var askedFirst = false

  init(_ runtime: Runtime, _ defaults: RequestDefaults, _ destination: Destination, _ resolver: Resolver) {
    self.runtime = runtime
    self.defaults = defaults
    self.destination = destination
    methods = CurrentMethods(destination.service.methods)
    work = TurnWork(runtime)
    limit = ConnectionLimit(destination.mostConnectionsInAll, work)
    balancer = ChannelCore.newBalancer(destination, runtime)
    super.init()
    takeRetries()
    names = Names(resolver, of: destination.name, destination.resolving, self)
  }

  static func newBalancer(_ destination: Destination, _ runtime: Runtime, picks: Bool = false)
    -> Balancer
  {
    .make(
      picks ? .roundRobin : destination.service.balancing.policy, timeout: destination.connectTimeout,
      random: runtime.platform.random())
  }

  func begin(_ attempt: Attempt) {
    if !isHooked, closedBecause == nil {
      isHooked = true
      runtime.onShutdown(self)
    }
    attempt.listIndex = attempts.count
    attempts.append(attempt)
    counts.started &+= 1
  }

  /// Whether the channel, which has no TLS, is less private than the call's settings require. Credentials require TLS.
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
    lastUsed = runtime.now
  }

  // MARK: Where an attempt goes

  /// Gives `attempt` a stream, or lets it wait. If the attempt has to fail, it fails later, in `runInTurn`.
  func attach(_ attempt: Attempt) {
    if waiting.isEmpty, case .endpoint(let index) = pick, borrow(endpoints[index], { $0.open(attempt) }) {
      return
    }
    attachOtherwise(attempt)
  }

  private func attachOtherwise(_ attempt: Attempt) {
    if picker != nil {
      ask(attempt)
    } else if !waiting.isEmpty || pick != .choose || choose()?.open(attempt) != true {
      wait(attempt)
    }
  }

  /// The endpoint for the next attempt; nil: no endpoint has a slot.
  private func choose() -> Subchannel? {
    let first: Subchannel
    switch pick {
    case .endpoint(let index): first = endpoints[index]
    case .choose: first = endpoints[balancer.choose()]
    case .wait, .fail: return nil
    }
    if first.hasSlot { return first }
    let choices = balancer.choices
    for index in choices where endpoints[index].hasSlot { return endpoints[index] }
    // At most one endpoint makes a further connection. `first`, which the balancer has named, is asked before the
    // others. `lackSlot` may change the list of endpoints.
    var isGrowing = first.lackSlot(grows: true)
    for index in choices where index < endpoints.count && endpoints[index] !== first {
      isGrowing = endpoints[index].lackSlot(grows: !isGrowing) || isGrowing
    }
    return nil
  }

  private func wait(_ attempt: Attempt, isFirst: Bool = false) {
    guard isFirst || admits(attempt) else { return }
    if isFirst || attempt.order == .afterRefusal { waiting.prepend(attempt) } else { waiting.append(attempt) }
    attempt.notesWait(for: lack)
    if balancer.connectivity == .idle || pick == .fail { work.schedule(self) }
  }

  /// Called when an attempt without a stream has ended. The attempt leaves the queue in this turn, because another
  /// thread may release its call once the loop sleeps (`Runtime.releaseAtRest`).
  func forgetWaiting() {
    waiting.forget()
    parked.forget()
    if !waiting.isEmpty || !asking.isEmpty || !parked.isEmpty { work.schedule(self) }
  }

  /// The reason why the attempts in `waiting` wait.
  var lack: Lack {
    switch pick {
    case .endpoint, .choose: .slot
    case .wait, .fail: balancer.lacksName ? .name : .connection
    }
  }

  /// If attempts still wait, tells the balancer that a connection is wanted. If no connection can be made now, fails
  /// the attempts whose patience is `.none`.
  func runInTurn() {
    connectivity.tellWatches()
    tellNews()
    waiting.sweep()
    if !asking.isEmpty || !parked.isEmpty { placeAll() }
    guard !waiting.isEmpty else { return }
    runtime.refreshNow()
    if pick == .fail, closedBecause == nil {
      fail(balancer.failure, sparing: .oneConnection)
    } else {
      follow(.wanted)
    }
  }

  /// Begins to connect if the channel is IDLE.
  func connect() {
    guard closedBecause == nil else { return }
    runtime.refreshNow()
    if !isHooked {
      isHooked = true
      runtime.onShutdown(self)
    }
    follow(.wanted)
  }

  /// Ends all back-off delays: attempts to connect and look-ups of the name that wait after failures begin at once.
  func resetBackoff() {
    guard closedBecause == nil else { return }
    runtime.refreshNow()
    for subchannel in endpoints { subchannel.resetBackoff() }
    names?.resetBackoff()
  }

  /// Sets the TLS configuration of later connections. If the channel could not connect, the next call tries at once.
  func setCertificates(_ source: TLSSource) {
    destination.tls = source
    if pick == .fail { follow(.rest) }
    resetBackoff()
  }

  /// Passes an event to the balancer, and carries out its actions. Events that result from the actions are queued and
  /// passed afterwards, not recursively: hundreds of addresses may fail at once.
  private func follow(_ event: BalancerEvent) {
    if !parked.isEmpty { retry(event) }
    events.append(event)
    if isFollowing { return }
    isFollowing = true
    let before = lack
    while !events.isEmpty {
      var actions = balancer.handle(events.removeFirst(), now: runtime.now)
      pick = balancer.pick
      while let action = actions.next() {
        switch action {
        case .resolve:
          noteIgnored()
          names?.ask()
        case .refresh: names?.refresh()
        case .connect(let index, let until):
          connect(index, until)
        case .connectAll(let until):
          for index in endpoints.indices { connect(index, until) }
        case .arm(let time): runtime.arm(self, at: time)
        case .useOnly(let index): useOnly(index)
        case .serve: if asking.isEmpty { serve() } else { serveByTurns() }
        case .fail(let why): fail(why, sparing: .anyTime)
        }
      }
    }
    isFollowing = false
    if lack != before { waiting.forEach { $0.notesWait(for: lack) } }
    tellState()
    if balancer.connectivity == .idle, !waiting.isEmpty { work.schedule(self) }
  }

  private func tellState() {
    let now = balancer.connectivity
    let before = connectivity.now
    if connectivity.set(now) { work.schedule(self) }
    if now != before { noteState(now) }
    guard destination.idleTimeout > 0 else { return }
    if now == .idle || now == .shutdown {
      idleTimer.map { runtime.disarm($0) }
    } else if idleTimer?.isArmed != true {
      lastUsed = runtime.now
      let timer = idleTimer ?? ChannelTimer(.rest(.passUnretained(self)))
      idleTimer = timer
      runtime.arm(timer, at: Time.after(destination.idleTimeout, lastUsed))
    }
  }

  /// Called when the idle timer is due. Makes the channel IDLE if it was unused for the idle timeout, or rearms.
  func mayRest(_ timer: ChannelTimer) {
    let since = attempts.isEmpty ? lastUsed : runtime.now
    let until = Time.after(destination.idleTimeout, since)
    if runtime.now < until { return runtime.arm(timer, at: until) }
    follow(.rest)
  }

  private func useOnly(_ index: Int?) {
    runtime.disarm(self)
    if index == nil { outlierTimer.map { runtime.disarm($0) } }
    for subchannel in endpoints where subchannel.endpointIndex != index { subchannel.unwanted() }
    if index == nil { names?.rest() }
  }

  /// Gives streams to the attempts in `waiting`. Attempts that find no slot stay there.
  func serve() {
    while !waiting.isEmpty, let endpoint = choose(), let attempt = waiting.popFirst() {
      attempt.notesWait(for: .nothing)
      if attempt.isChoosy || picker != nil {
        ask(attempt)
      } else if !endpoint.open(attempt) {
        wait(attempt, isFirst: true)
      }
    }
  }

  /// Begins to connect the endpoint at `index`, if the endpoint is IDLE.
  private func connect(_ index: Int, _ until: UInt64) {
    if let news = endpoints[index].connect(until: until) { events.append(.endpoint(index, news)) }
  }

  private func words(_ why: BalancerAction.Why) -> ByteBuffer {
    switch why {
    case .nameless: nameless
    case .unconnected: ConnectReport.words(destination.name, endpoints, now: runtime.now)
    case .closed: ByteBuffer().say("the channel is closed")
    }
  }

  private func noteState(_ now: Connectivity) {
    switch now {
    case .idle: note(.idle)
    case .transientFailure: note(.unreachable, nil, words(balancer.failure))
    case .connecting, .ready, .shutdown: break
    }
  }

  /// Fails the attempts in `waiting`, except those with at least the given patience.
  private func fail(_ why: BalancerAction.Why, sparing patience: Patience) {
    let words = words(why)
    // Calls that begin while these attempts fail wait in the new queue.
    var all = waiting
    waiting = WaitQueue()
    var failing: [Attempt] = []
    while let attempt = all.popFirst() {
      if attempt.patience >= patience { waiting.append(attempt) } else { failing.append(attempt) }
    }
    for attempt in failing { attempt.connectFailed(words) }
  }

  // MARK: Names

  /// Sets a resolver of the user's program, which gives the addresses from now on, in place of look-ups.
  func setResolver(_ resolver: ProgramResolver) {
    guard closedBecause == nil else { return resolver.close() }
    runtime.refreshNow()
    let old = names
    let way = destination.proxy.map { ProxyResolver($0, target: resolver, runtime) }
    let fresh = Names(way ?? resolver, of: destination.name, destination.resolving, self)
    names = fresh
    old?.close()
    if let servers = way?.servers { resolver.join(servers) } else { resolver.join(fresh) }
    if balancer.connectivity != .idle { fresh.ask() }
  }

  /// Called when the resolver has found addresses: applies its service config. nil: the resolver has none.
  func serve(_ service: ServiceConfig?) {
    guard closedBecause == nil else { return }
    let before = destination.service
    destination.service = service ?? destination.ownService
    methods.set(destination.service.methods)
    takeRetries()
    if destination.service.balancing != before.balancing {
      note(.policy, nil, ByteBuffer().say(destination.service.balancing.policy.name))
      changeBalancer(hasNames: true)
    } else if destination.service.ignored != before.ignored {
      noteIgnored()
    }
  }

  /// Makes a new balancer, which gets the endpoints with the next addresses. The endpoints keep their connections.
  /// `hasNames`: the caller passes the addresses on next. Otherwise this function asks for them.
  func changeBalancer(hasNames: Bool) {
    let wasIdle = balancer.connectivity == .idle
    balancer = ChannelCore.newBalancer(destination, runtime, picks: picker != nil)
    noteIgnored()
    // Of the attempts that have had one place together, several may be kept now.
    if limit.hasRace { for subchannel in endpoints where !subchannel.hasConnection { subchannel.unwanted() } }
    if !wasIdle { _ = balancer.handle(.wanted, now: runtime.now) }
    pick = balancer.pick
    runtime.disarm(self)
    if !wasIdle, !hasNames { names?.ask() }
  }

  /// Called with addresses from the resolver. An endpoint with a known address stays, with its connections.
  func named(_ list: [Endpoint]) {
    guard closedBecause == nil else { return }
    var old = endpoints
    endpoints = []
    var list = list
    if case .pickFirst(shuffles: true) = destination.service.balancing.policy { shuffle(&list) }
    for endpoint in Endpoint.interleaved(list, onlyFirstPriority: usesAllEndpoints) {
      if let known = old.firstIndex(where: { $0.endpoint.isSame(as: endpoint) }) {
        old[known].endpoint = endpoint
        endpoints.append(old.remove(at: known))
      } else {
        endpoints.append(Subchannel(endpoint, self))
      }
      endpoints[endpoints.count - 1].endpointIndex = endpoints.count - 1
    }
    for subchannel in old {
      subchannel.remove()
      if subchannel.isInUse { removed.append(subchannel) }
    }
    watchOutliers()
    let usesAll = usesAllEndpoints
    // With pick_first, which uses only one endpoint, the server is not asked for its health (gRFC A17).
    let service = usesAll && destination.checksHealth ? destination.service.healthService : nil
    for subchannel in endpoints { subchannel.watchHealth(of: service) }
    let states = endpoints.map { usesAll ? $0.stickyConnectivity : $0.connectivity }
    // Events in the queue have indices into the old list of endpoints, so they are dropped.
    events.removeAll()
    let isWeighted = destination.service.balancing.policy == .staticWeightedRoundRobin
    follow(.named(states, weights: isWeighted ? endpoints.map { $0.endpoint.weight } : []))
    limit.serveSoon()
  }

  private func shuffle(_ list: inout [Endpoint]) {
    // A list of endpoints with priorities is already in a random order, by weight.
    for last in list.indices.reversed() where list[0].priority == nil {
      list.swapAt(last, Int(runtime.platform.random() % UInt64(last + 1)))
    }
  }

  func nameless(_ words: ByteBuffer) {
    nameless = words
    follow(.nameless)
  }

  /// Called when the timer that the balancer has armed is due.
  override func fire() { follow(.time) }

  // MARK: News from a subchannel

  func hears(_ news: EndpointNews, _ subchannel: Subchannel) {
    // An endpoint that outlier detection has ejected counts as failed, although it is connected.
    let news = subchannel.isEjected && news == .ready ? .failed : news
    if subchannel.endpointIndex >= 0 { follow(.endpoint(subchannel.endpointIndex, news)) }
  }

  /// Called when the last connection of an endpoint of earlier addresses has closed.
  func isDone(_ subchannel: Subchannel) { removed.drop(subchannel) }

  // MARK: The end

  func runtimeShutdown(_ why: Closing) {
    isHooked = false
    close(why)
  }

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
    names?.close()
    runtime.disarm(self)
    idleTimer.map { runtime.disarm($0) }
    outlierTimer.map { runtime.disarm($0) }
    _ = balancer.handle(.close, now: runtime.now)
    pick = balancer.pick
    _ = connectivity.set(.shutdown)
    let known = endpoints
    let others = removed
    endpoints = []
    removed = []
    for subchannel in known { subchannel.close() }
    for subchannel in others { subchannel.close() }
    limit.close()
    connectivity.tellWatches()
    tellNews()
    listeners = nil
    asking = WaitQueue()
    parked = WaitQueue()
    // These are released last, because their release may run user code.
    picker = nil
    connector = nil
    verifier = nil
    if defaults.compressors != nil { defaults = defaults.with(nil) }
  }
}
