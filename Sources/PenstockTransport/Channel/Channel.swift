import PenstockCall
import PenstockChannel
import PenstockWire
import Synchronization

/// A target with its credentials and options, and as many connections as are needed. Calls know nothing of
/// connections: each call gets an attempt, and the attempt gets a connection.
///
/// This object is the handle; the driving thread works with `ChannelCore`. `@unchecked Sendable`: all fields are
/// immutable, and the core is touched on the driving thread only.
public final class Channel: @unchecked Sendable {
  let core: ChannelCore
  private let runtime: Runtime
  /// The TLS options; nil: without TLS.
  private let tls: TLSOptions?
  /// Whether a thread has begun to close the core. So only one thread closes it, even if the runtime has
  /// ended and no thread drives.
  private let isClosing = Atomic<Bool>(false)

  init(_ core: ChannelCore, _ runtime: Runtime, _ tls: TLSOptions? = nil) {
    self.core = core
    self.runtime = runtime
    self.tls = tls
  }

  /// Closes the connections. In a forked child that has not taken the channel over (`Fork`), closes only
  /// their descriptors.
  deinit {
    if Process.isForked(runtime.generation) { core.closeInChild() } else { close() }
  }

  /// Makes a channel, on any thread. It connects for its first call, or when `connect` is called.
  @inline(never) @_optimize(size)
  public static func make(runtime: Runtime, target: ByteView, options: ChannelOptions) -> Made<Channel> {
    let parsed: Target
    switch Target.parse(target) {
    case .failed(let words): return .failed(SetupFailure("target", words))
    case .noMemory: return .failed(.noMemory)
    case .target(let outcome): parsed = outcome
    }
    var context: TLSContext?
    let isCleartext = parsed.isUnix || parsed.security == .cleartext
    let tls = options.usesDefaultTLS && isCleartext ? nil : options.tls
    if parsed.security != .unsaid, (tls != nil) != (parsed.security == .tls) {
      return .failed(
        SetupFailure(
          "target", ByteBuffer().say("\"tls\" contradicts the URL: https:// has TLS, and http:// has none")))
    }
    if let tls {
      switch TLSContext.make(role: .client, options: tls) {
      case .failed(let failure): return .failed(failure)
      case .made(let made): context = made
      }
    }
    let agent = ByteBuffer()
    guard let name = ByteBuffer(copying: target),
      UserAgent.compose(version: options.version, application: options.userAgent?.view, into: agent)
    else { return .failed(.noMemory) }
    var limits = HTTP2Limits()
    limits.streamWindow = options.initialStreamWindow
    limits.connectionWindow = options.initialConnectionWindow
    limits.mostWindow = options.mostWindow
    limits.maxHeaderList = options.maxHeaderListBytes
    let privacy = context != nil ? Privacy.tls : parsed.isUnix ? .local : .cleartext
    let defaults = RequestDefaults(
      privacy: privacy, authority: options.authority ?? parsed.authority, userAgent: agent, rpc: options.rpc,
      prefix: parsed.prefix, mostURLBytes: options.mostURLBytes)
    let destination = Destination(parsed, name, context, limits, options)
    let resolver = runtime.platform.makeResolver(parsed.location, services: options.services, runtime)
    return .made(Channel(ChannelCore(runtime, defaults, destination, resolver), runtime, tls))
  }

  /// Makes an attempt, on the driving thread.
  public func newAttempt() -> CallBelow { Attempt(.passUnretained(core)) }

  /// The default authority, without a NUL, valid as long as the channel.
  public var defaultAuthority: ByteView { core.defaults.authority.view }

  public var privacy: Privacy { core.defaults.privacy }
  public var rpc: RPCProtocol { core.defaults.rpc }

  /// Sets the certificates for connections that begin from now on. Any thread. A part that is nil is taken
  /// from the channel's options, and its file is read again. The result is nil if the channel has no TLS.
  @inline(never) @_optimize(size)
  public func setCertificates(roots: ByteBuffer?, chain: ByteBuffer?, key: ByteBuffer?) -> Made<Void>? {
    guard var tls else { return nil }
    if let roots { tls.roots = .pem(roots) }
    if let chain { tls.certificateChain = .pem(chain) }
    if let key { tls.privateKey = .pem(key) }
    switch TLSContext.make(role: .client, options: tls) {
    case .failed(let failure): return .failed(failure)
    case .made(let context):
      runtime.post(Asked(core) { $0.setCertificates(context) })
      return .made(())
    }
  }

  /// Makes a resolver of the program find the addresses from now on, instead of a look-up of the target's
  /// name. `give` gets the resolver's handle. Any thread.
  @inline(never) @_optimize(size)
  public func setResolver(_ functions: ResolverFunctions, _ give: (ResolverHandle) -> Void) {
    let resolver = ProgramResolver(functions, runtime)
    // The functions may use the handle at once.
    give(resolver.handle)
    runtime.post(NewResolver(core, resolver))
  }

  /// Makes `picker` choose the endpoint of each attempt from now on; nil: the balancer chooses again. Any
  /// thread.
  public func set(_ picker: Picker?) { runtime.post(Asked(core) { $0.set(picker) }) }

  /// The channel's state, on any thread.
  public var connectivity: Connectivity { core.connectivity.now }

  /// Waits until the state differs from `old`, or until `deadline`. Any thread except the driving one.
  public func wait(for old: Connectivity, deadline: UInt64?) -> Runtime.WaitResult {
    core.connectivity.wait(for: old, on: runtime, deadline: deadline)
  }

  /// Makes the watch be told the channel's states. Any thread; does not wait.
  public func add(_ watch: ConnectivityWatch) { runtime.post(Asked(core) { $0.add(watch) }) }

  /// Begins to connect if the channel is idle. Any thread; does not wait.
  public func connect() { runtime.post(Asked(core) { $0.connect() }) }

  /// Ends the waits after failures: attempts to connect and look-ups of the name begin at once. Any thread; does not
  /// wait.
  public func resetBackoff() { runtime.post(Asked(core) { $0.resetBackoff() }) }

  /// Closes the channel, on any thread, without waiting: the calls under way end with CANCELLED, and the connections
  /// close.
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
  /// Closes the core on the calling thread, because no thread drives any more.
  override func dropped(_ why: Closing) { core.close(.channelClosed) }
}
