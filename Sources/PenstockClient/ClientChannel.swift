import PenstockCall
import PenstockChannel
import PenstockWire
import Synchronization
import PenstockLoop
import PenstockLink
import PenstockHTTP
import PenstockTransport
import PenstockFraming

/// Times the callbacks of a channel's calls, and tells the channel's listeners of those that are slow.
private final class ChannelCallbackTimes: CallbackTimes {
  private let platform: Platform
  private let lock = Lock()
  /// The channel, under the lock; nil: it has been freed. The reference is not counted, because the channel's
  /// listeners refer to this object.
  private var transport: Unmanaged<Channel>?

  init(_ platform: Platform, _ transport: Channel, limit: UInt64) {
    self.platform = platform
    self.transport = .passUnretained(transport)
    super.init(limit: limit)
  }

  override func clock() -> UInt64 { platform.coarseClock() }

  override func report(_ slow: Slow) {
    let channel = lock.withLock { transport.map { $0.takeUnretainedValue() } }
    channel?.report(slow)
  }

  func forgetChannel() { lock.withLock { transport = nil } }
}

/// A channel as its user sees it: the transport's channel, its interceptors, and default options for its
/// calls.
public final class ClientChannel: @unchecked Sendable {
  public let runtime: ClientRuntime
  /// The loop on which the channel and its calls run.
  let loop: RuntimeLoop
  public let generation: UInt64
  let transport: Channel
  let chains: ChannelChains
  let paths = PathCache()
  let methods: CurrentMethods
  let defaults: CallDefaults
  /// The limit on what all calls together have not sent yet; nil: there is none.
  let sendBudget: SendBudget?
  let origin: CallOrigin
  private let times: ChannelCallbackTimes
  /// Calls the `on_connection` callback of an interceptor with a connection event. `target` ends with a NUL.
  public typealias Teller = (ConnectionNews, Registration, _ target: ByteBuffer) -> Void
  private let phase = Atomic<Phase>(.open)
  private let lock = Lock()
  private var ownCodec: Codec?
  /// Whether `form` would change a new call: the channel has a codec or a default content-type. If not, a new
  /// call takes no lock here.
  private let formsCallsNow: Atomic<Bool>
  /// The number of handles that the user has. Calls may keep the channel alive after the last handle is
  /// released.
  private let handles = Atomic<Int>(1)

  /// Makes a channel. The caller has already counted it twice, as a user of `runtime`
  /// (`ClientRuntime.addUser`) and as a channel on `loop` (`ClientRuntime.loopForChannel`). The channel takes
  /// these two counts over.
  public init(
    _ runtime: ClientRuntime, _ loop: RuntimeLoop, _ transport: Channel, target: ByteBuffer,
    authority: ByteBuffer,
    defaults: CallDefaults,
    newestFirst: Bool, teller: @escaping Teller = { _, _, _ in }
  ) {
    self.runtime = runtime
    self.loop = loop
    generation = runtime.generation
    self.transport = transport
    methods = transport.methods
    times = ChannelCallbackTimes(loop.runtime.platform, transport, limit: defaults.slowCallback)
    origin = CallOrigin(
      target: target, defaultAuthority: authority, privacy: transport.privacy, rpc: transport.rpc,
      mostQueryBytes: transport.mostQueryBytes, loop: loop,
      replays: ReplayBudget(ofCall: defaults.replayBytes, ofAll: defaults.channelReplayBytes),
      watch: loop.watch, times: times)
    self.defaults = defaults
    sendBudget = SendBudget.make(defaults.maxBufferedBytes)
    formsCallsNow = Atomic(defaults.contentType != nil)
    chains = ChannelChains(newestFirst: newestFirst, times, of: transport, on: loop)
    transport.set(ConnectionListeners(runtime, chains, target, teller))
    runtime.join(chains)
  }

  /// Runs when the user has no handle of the channel and the channel has no calls.
  deinit {
    if !Process.isForked(generation) {
      transport.close()
      times.forgetChannel()
      runtime.forget(chains)
      chains.removeAll()
      if phase.load(ordering: .relaxed) != .closed { loop.hasOneChannelLess() }
    }
    runtime.removeHolder()
  }

  public func retainHandle() { handles.wrappingAdd(1, ordering: .relaxed) }

  /// Subtracts one from the number of handles. The caller still has to release the reference that the handle
  /// held.
  public func releaseHandle() {
    guard handles.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue == 0,
      !Process.isForked(generation)
    else { return }
    chains.handlesReleased()
    runtime.isOutOfReach()
  }

  private enum Phase: UInt8, AtomicRepresentable {
    case open
    /// The channel accepts no new calls, and closes when its present calls have ended.
    case draining
    case closed
  }

  public var isClosed: Bool { phase.load(ordering: .acquiring) == .closed || loop.isClosed }
  /// Whether new calls can be made on the channel.
  public var isOpen: Bool { phase.load(ordering: .acquiring) == .open && !loop.isClosed }

  /// Sets the codec for calls that are made from now on.
  public func setCodec(_ codec: Codec?) {
    let old = lock.withLock { () -> Codec? in
      let old = ownCodec
      ownCodec = codec
      formsCallsNow.store(codec != nil || defaults.contentType != nil, ordering: .releasing)
      return old
    }
    withExtendedLifetime(old) {}
  }

  private var codec: Codec? { lock.withLock { ownCodec } }

  /// Whether the channel has a codec or a default content-type, so that `form` must be called for a new call.
  var formsCalls: Bool { formsCallsNow.load(ordering: .acquiring) }

  /// Sets the codec of a new call and, if the call's options have no content-type, the content-type of the
  /// encoding. `codec`: the codec of the call's options; nil: the channel's codec is used.
  func form(_ call: Call, _ codec: Codec?) {
    let codec = codec ?? self.codec
    call.codec = codec
    let labels = call.request.labels
    guard labels?.contentType == nil, let type = codec?.contentType ?? defaults.contentType else { return }
    call.request.takeLabels(
      of: RequestLabels(authority: nil, contentType: type, userAgent: labels?.userAgent))
  }

  /// Ends all calls of the channel, closes its connections, and removes its interceptors. Does not wait.
  public func close() -> Outcome {
    guard phase.exchange(.closed, ordering: .acquiringAndReleasing) != .closed else { return .already }
    loop.hasOneChannelLess()
    loop.runtime.post(Closing(self))
    chains.removeAll()
    return .ok
  }

  /// Closes the channel when its calls have ended, or after `timeoutMilliseconds` at the latest (-1: without
  /// limit). Does not wait.
  public func closeGracefully(timeoutMilliseconds: Int64) -> Outcome {
    let deadline = Runtime.deadline(after: timeoutMilliseconds, from: loop.runtime.clock)
    let (isFirst, _) = phase.compareExchange(
      expected: .open, desired: .draining, ordering: .acquiringAndReleasing)
    guard isFirst else { return .already }
    loop.runtime.post(Farewell.Begin(Farewell(self, deadline)))
    return .ok
  }

  private final class Closing: InboxItem {
    private let channel: ClientChannel

    init(_ channel: ClientChannel) { self.channel = channel }

    override func run() {
      channel.loop.live.end(channel, .channelClosed)
      channel.transport.close()
    }
  }

  public var connectivity: Connectivity { isClosed ? .shutdown : transport.connectivity }

  /// Whether the channel's loop has ended, so that nothing can be asked any more.
  public var hasEnded: Bool { loop.runtime.ended.load(ordering: .acquiring) }

  /// The channel's state and figures; nil: the loop has not answered within `nanoseconds`. Any thread.
  public func view(within nanoseconds: UInt64) -> ChannelView? {
    loop.look(within: nanoseconds, at: .channel(transport))?.channels.first
  }

  /// Waits until the connectivity state differs from `old`, and returns the new state.
  public func wait(for old: Connectivity, timeoutMilliseconds: Int64) -> (Outcome, Connectivity) {
    let deadline = Runtime.deadline(after: timeoutMilliseconds, from: loop.runtime.clock)
    if connectivity != old { return (.ok, connectivity) }
    if runtime.isDriving { return (.wouldDeadlock, old) }
    switch transport.wait(for: old, deadline: deadline) {
    case .ready: return (.ok, connectivity)
    case .timedOut: return (.timedOut, old)
    case .interrupted: return (.interrupted, old)
    case .wouldDeadlock: return (.wouldDeadlock, old)
    case .closed: return (.ok, .shutdown)
    }
  }

  public func add(_ watch: ConnectivityWatch) -> Outcome {
    if isClosed { return .closed }
    transport.add(watch)
    return .ok
  }

  public func connect() -> Outcome {
    if !isOpen { return .closed }
    transport.connect()
    return .ok
  }

  public func resetBackoff() -> Outcome {
    if isClosed { return .closed }
    transport.resetBackoff()
    return .ok
  }

  /// Sets a resolver of the user's, which finds the channel's addresses from now on (`Channel.setResolver`).
  /// If the channel is closed, `functions` is released at once.
  public func setResolver(_ functions: ResolverFunctions, _ give: (ResolverHandle) -> Void) -> Outcome {
    if isClosed { return .closed }
    transport.setResolver(functions, give)
    return .ok
  }

  /// Sets the picker that chooses the endpoint of each attempt from now on. nil: the channel's load balancer
  /// chooses. If the channel is closed, the picker is released at once.
  public func set(_ picker: Picker?) -> Outcome {
    if isClosed { return .closed }
    transport.set(picker)
    return .ok
  }

  /// Sets the user's functions that open the sockets of connections that begin from now on. nil: the library opens
  /// them. If the channel is closed, the functions are released at once.
  public func set(_ connector: ConnectorFunctions?) -> Outcome {
    if isClosed { return .closed }
    transport.set(connector)
    return .ok
  }

  /// Sets the user's own check of servers' certificates for connections that begin from now on. nil: there is none. If
  /// the channel is closed, the check is released at once.
  public func set(_ verifier: ServerVerifier?) -> Outcome {
    if isClosed { return .closed }
    transport.set(verifier)
    return .ok
  }

  /// Adds a compressor of the user's, for calls that begin from now on.
  public func add(_ compressor: ProgramCompressor) -> Outcome {
    if isClosed { return .closed }
    transport.add(compressor)
    return .ok
  }

  public func add(_ registration: Registration, priority: Int32) -> Outcome {
    if !isOpen { return .closed }
    return chains.add(registration, priority: priority) ? .ok : .closed
  }

  /// Sets the certificates for connections that begin from now on (`Channel.setCertificates`). Any thread.
  public func setCertificates(roots: ByteBuffer?, chain: ByteBuffer?, key: ByteBuffer?) -> Made<Void>? {
    transport.setCertificates(roots: roots, chain: chain, key: key)
  }

  /// The owner of the channel's registered interceptors.
  public var registrations: RegistrationOwner { chains }

  /// The registered interceptors of the runtime and the channel, sorted by priority.
  public var entries: [Registry.Entry] { chains.merged(with: runtime) }
}
