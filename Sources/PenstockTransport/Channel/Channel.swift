import PenstockCall
import PenstockChannel
import PenstockWire
import Synchronization
import PenstockLoop
import PenstockNames
import PenstockLink
import PenstockHTTP
import PenstockFraming

/// A channel: a target with its credentials and options, and as many connections as are needed. Calls know
/// nothing of connections: each call gets an attempt, and the attempt gets a stream on a connection.
///
/// This object is the handle for other threads; the driving thread works with `ChannelCore`. `@unchecked
/// Sendable`: all fields are constant, and only the driving thread uses the core.
public final class Channel: @unchecked Sendable {
  let core: ChannelCore
  private let runtime: Runtime
  /// The core's defaults at first. Those that any thread reads never change.
  private let defaults: RequestDefaults
  /// The TLS options; nil: without TLS.
  private let tls: TLSOptions?
  /// Whether a thread has begun to close the core. So only one thread closes the core, even if the runtime
  /// has ended and no thread drives it.
  private let isClosing = Atomic<Bool>(false)

  init(_ core: ChannelCore, _ runtime: Runtime, _ tls: TLSOptions? = nil) {
    self.core = core
    self.runtime = runtime
    defaults = core.defaults
    self.tls = tls
  }

  /// Closes the connections. In a forked child that has not taken over the parent's handles (`Fork`), closes
  /// only the connections' descriptors.
  deinit {
    if Process.isForked(runtime.generation) { core.closeInChild() } else { close() }
  }

  /// Makes a channel, on any thread. The channel connects when its first call begins, or when `connect` is
  /// called. `resolver`: finds the addresses; nil: the one that fits the target.
  public static func make(runtime: Runtime, target: ByteView, options: ChannelOptions) -> Made<Channel> {
    make(runtime: runtime, target: target, options: options, resolver: nil)
  }

  static func make(
    runtime: Runtime, target: ByteView, options: ChannelOptions, resolver: Resolver?
  ) -> Made<Channel> {
    let parsed: Target
    switch Target.parse(target) {
    case .failed(let words): return .failed(SetupFailure("target", words))
    case .noMemory: return .failed(.noMemory)
    case .target(let outcome): parsed = outcome
    }
    var source: TLSSource?
    let isCleartext = parsed.isUnix || parsed.security == .cleartext
    var tls = options.usesDefaultTLS && isCleartext ? nil : options.tls
    if parsed.security != .unsaid, (tls != nil) != (parsed.security == .tls) {
      return .failed(
        SetupFailure(
          "target", ByteBuffer().say("\"tls\" contradicts the URL: https:// has TLS, and http:// has none")))
    }
    tls?.http = options.wantedHTTP
    if let tls {
      switch TLSSource.make(tls) {
      case .failed(let failure): return .failed(failure)
      case .made(let made): source = made
      }
    }
    let agent = ByteBuffer()
    guard let name = ByteBuffer(copying: target),
      UserAgent.compose(version: options.version, application: options.userAgent?.view, into: agent)
    else { return .failed(.noMemory) }
    var limits = TransportLimits()
    limits.streamWindow = options.initialStreamWindow
    limits.connectionWindow = options.initialConnectionWindow
    limits.mostWindow = options.mostWindow
    limits.maxHeaderList = options.maxHeaderListBytes
    let privacy = source != nil ? Privacy.tls : parsed.isUnix ? .local : .cleartext
    let defaults = RequestDefaults(
      privacy: privacy, authority: options.authority ?? parsed.authority, userAgent: agent, rpc: options.rpc,
      prefix: parsed.prefix, mostURLBytes: options.mostURLBytes, acceptsZstd: options.acceptsZstd)
    let proxy: Proxy?
    switch options.proxy(for: parsed, hasTLS: source != nil) {
    case .failed(let words): return .failed(SetupFailure("proxy", words))
    case .noMemory: return .failed(.noMemory)
    case .proxy(let found): proxy = found
    }
    let destination = Destination(parsed, name, source, limits, options, proxy: proxy, userAgent: agent)
    var finder = resolver ?? Resolver.make(parsed.location, services: options.services, runtime)
    if let proxy {
      finder = ProxyResolver(proxy, target: options.looksUp(parsed, proxy) ? finder : nil, runtime)
    }
    return .made(Channel(ChannelCore(runtime, defaults, destination, finder), runtime, tls))
  }

  /// Makes an attempt for a call. Called on the driving thread.
  public func newAttempt() -> CallBelow { Attempt(.passUnretained(core)) }

  /// Whether the throttle of the service config lets a hedged call be sent once more. `status`: that of its last attempt
  /// that has failed. Called on the driving thread.
  public func allowsHedge(of call: Call, after status: Status?) -> Bool {
    core.allowsHedge(of: call, after: status)
  }

  /// The default authority, without a NUL. The view is valid as long as the channel lives.
  public var defaultAuthority: ByteView { defaults.authority.view }

  public var privacy: Privacy { defaults.privacy }
  public var rpc: RPCProtocol { defaults.rpc }
  public var mostQueryBytes: Int { defaults.mostQueryBytes }

  /// The settings for each method in the present service config. Any thread.
  public var methods: CurrentMethods { core.methods }

  /// Tells the listeners to connection events of a callback that was slow. Any thread; does not wait.
  public func report(_ slow: CallbackTimes.Slow) { runtime.post(Asked(core) { $0.note(slow) }) }

  /// Sets the listeners to connection events. Called before the channel is used.
  public func set(_ listeners: NewsListeners) { core.listeners = listeners }

  /// Sets the certificates for connections that begin from now on. Any thread. A part that is nil is taken
  /// from the channel's options; if it is a file, the file is read again. Returns nil if the channel has no
  /// TLS.
  public func setCertificates(roots: ByteBuffer?, chain: ByteBuffer?, key: ByteBuffer?) -> Made<Void>? {
    guard var tls else { return nil }
    if let roots { tls.roots = .pem(roots) }
    if let chain { tls.certificateChain = .pem(chain) }
    if let key { tls.privateKey = .pem(key) }
    switch TLSSource.make(tls) {
    case .failed(let failure): return .failed(failure)
    case .made(let source):
      runtime.post(Asked(core) { $0.setCertificates(source) })
      return .made(())
    }
  }

  /// Sets a resolver of the user's program. It finds the addresses from now on, in place of look-ups of the
  /// target's name. `give` gets the resolver's handle. Any thread.
  public func setResolver(_ functions: ResolverFunctions, _ give: (ResolverHandle) -> Void) {
    let resolver = ProgramResolver(functions, runtime)
    // The handle is given before the posted item calls the resolver's functions, because they may use the
    // handle.
    give(resolver.handle)
    runtime.post(NewResolver(core, resolver))
  }

  /// Makes `picker` choose the endpoint of each attempt from now on; nil: the load balancer chooses again.
  /// Any thread.
  public func set(_ picker: Picker?) { runtime.post(Asked(core) { $0.set(picker) }) }

  /// Makes the user's functions open the sockets of connections that begin from now on; nil: the library opens
  /// them again. Any thread.
  public func set(_ connector: ConnectorFunctions?) {
    runtime.post(Asked(core) { if $0.closedBecause == nil { $0.connector = connector } })
  }

  /// Makes the user's function check the certificates of servers from now on, too; nil: it does no more. Sessions that
  /// earlier connections have left are not resumed. Any thread.
  public func set(_ verifier: ServerVerifier?) {
    runtime.post(
      Asked(core) {
        if $0.closedBecause != nil { return }
        $0.verifier = verifier
        $0.destination.tls?.forgetSessions()
      })
  }

  /// Adds a compressor of the program, for calls that begin from now on. Any thread.
  public func add(_ compressor: ProgramCompressor) {
    runtime.post(
      Asked(core) {
        if $0.closedBecause != nil { return }
        let all = ProgramCompressors($0.defaults.compressors, compressor, $0.runtime.mark)
        $0.defaults = $0.defaults.with(all)
      })
  }

  /// The channel's connectivity state. Any thread.
  public var connectivity: Connectivity { core.connectivity.now }

  /// Waits until the connectivity state differs from `old`, or until `deadline` (monotonic ns). Any thread
  /// except the driving thread.
  public func wait(for old: Connectivity, deadline: UInt64?) -> Runtime.WaitResult {
    core.connectivity.wait(for: old, on: runtime, deadline: deadline)
  }

  /// Adds a watch, whose function is called with the channel's connectivity states. Any thread; does not
  /// wait.
  public func add(_ watch: ConnectivityWatch) { runtime.post(Asked(core) { $0.add(watch) }) }

  /// Begins to connect if the channel is idle. Any thread; does not wait.
  public func connect() { runtime.post(Asked(core) { $0.connect() }) }

  /// Ends all back-off delays: attempts to connect and look-ups of the name that wait after failures begin at
  /// once. Any thread; does not wait.
  public func resetBackoff() { runtime.post(Asked(core) { $0.resetBackoff() }) }

  /// Closes the channel on any thread, without waiting. The calls under way end with CANCELLED, and the
  /// connections close.
  public func close() {
    if !isClosing.exchange(true, ordering: .relaxed) { runtime.post(ChannelClosing(core)) }
  }
}

private final class NewResolver: InboxItem {
  private let core: ChannelCore
  private let resolver: ProgramResolver

  init(_ core: ChannelCore, _ resolver: ProgramResolver) {
    self.core = core
    self.resolver = resolver
  }

  override func run() { core.setResolver(resolver) }
  override func dropped(_ why: Closing) { resolver.close() }
}

private final class Asked: InboxItem {
  private let core: ChannelCore
  private let body: (ChannelCore) -> Void

  init(_ core: ChannelCore, _ body: @escaping (ChannelCore) -> Void) {
    self.core = core
    self.body = body
  }

  override func run() { body(core) }
}

private final class ChannelClosing: InboxItem {
  private let core: ChannelCore

  init(_ core: ChannelCore) { self.core = core }

  override func run() { core.close(.channelClosed) }
  /// The runtime has ended and no thread drives it, so the calling thread closes the core.
  override func dropped(_ why: Closing) { core.close(.channelClosed) }
}
