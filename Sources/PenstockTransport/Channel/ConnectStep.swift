import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLoop
import PenstockNames
import PenstockLink
import PenstockHTTP

/// One step between a connected socket and HTTP: TLS, or the dialogue with a proxy. A step reads its input
/// from the link and writes its output to the link, and does no I/O. It is released when it is done. To add a
/// kind of step, write a subclass and make it in `Destination.steps`.
class ConnectStep {
  enum Outcome {
    case more
    case done
    case failed(ByteBuffer)
  }

  /// The step after this one; nil: HTTP begins after this step.
  final var next: ConnectStep?
  /// The words that name the step in an error text, such as " during the TLS handshake".
  var during: StaticString { mustOverride("") }

  /// Begins the step. `link.input` may already have bytes.
  func begin(_ link: Link) -> Outcome { take(link) }
  /// Called when more bytes are in `link.input`. Bytes that the step leaves there are input of the next step.
  func take(_ link: Link) -> Outcome { mustOverride(.failed(ByteBuffer())) }
  /// Adds to `text` a likely reason why the peer has closed the connection during this step. By
  /// default none is known.
  func guess(_ text: ByteBuffer) {}
}

final class TLSStep: ConnectStep {
  private let engine: TLSEngine

  init(_ engine: TLSEngine) { self.engine = engine }

  override var during: StaticString { " during the TLS handshake" }

  override func begin(_ link: Link) -> Outcome {
    link.put(engine) ? take(link) : .failed(ByteBuffer().say("no memory for TLS"))
  }

  override func take(_ link: Link) -> Outcome {
    switch engine.handshake() {
    case .needsMore: return .more
    case .done: return .done
    case .failed: return .failed(engine.failure ?? ByteBuffer().say("TLS failed"))
    }
  }

  override func guess(_ text: ByteBuffer) {
    if engine.isUnanswered { text.say("; it sent nothing, and may not speak TLS") }
  }
}

/// The settings of a channel for its connections, except the address.
class Destination: ConnectionSettings {
  final let target: Target
  /// The target as the user wrote it, for error texts.
  final let name: ByteBuffer
  /// The TLS configuration of later connections; nil: no TLS. Only the driving thread uses it.
  final var tls: TLSSource?
  final let connectTimeout: UInt64
  final let idleTimeout: UInt64
  final let maxConnectionAge: UInt64
  final let checksHealth: Bool
  /// The HTTP version. `auto`: the server chooses by ALPN in TLS; without a choice the version is HTTP/1.1.
  final let http: HTTPChoice
  /// The most connections of HTTP/1.1 to one address.
  final let http1Connections: Int
  /// The time in nanoseconds for which a connection of HTTP/1.1 without a request stays open.
  final let http1IdleTimeout: UInt64
  private final let connectionsCap: Int
  /// The present limit on connections to one address, from the service config and the channel's options.
  final var mostConnections: Int { min(service.connectionsPerSubchannel, connectionsCap) }
  /// The limits of the channel's connections to all addresses together, and of its calls that wait; 0: none.
  final let mostConnectionsInAll: Int
  final let mostPendingCalls: Int
  final let resolving: ResolveState.Policy
  /// Whether the retry policies of the service config apply.
  final let retries: Bool
  /// The service config of the channel's options.
  final let ownService: ServiceConfig
  /// The proxy of the channel's connections; nil: none.
  final let proxy: Proxy?
  /// The settings of the sockets that the library opens.
  final let sockets: SocketSettings
  private final let userAgent: ByteBuffer
  /// Whether the requests name another server than the target. A proxy that forwards them would not pass that on.
  private final let hasOwnAuthority: Bool
  /// The present service config: from the resolver, or otherwise from the channel's options. Driving thread
  /// only.
  final var service: ServiceConfig

  init(
    _ target: Target, _ name: ByteBuffer, _ tls: TLSSource?, _ limits: TransportLimits,
    _ options: ChannelOptions,
    proxy: Proxy? = nil, userAgent: ByteBuffer = ByteBuffer()
  ) {
    self.target = target
    self.name = name
    self.tls = tls
    self.proxy = proxy
    self.userAgent = userAgent
    sockets = options.sockets
    hasOwnAuthority = options.authority != nil
    connectTimeout = options.connectTimeout
    idleTimeout = options.idleTimeout
    maxConnectionAge = options.maxConnectionAge
    checksHealth = options.checksHealth
    http = options.wantedHTTP
    retries = options.retries
    http1Connections = options.http1Connections
    http1IdleTimeout = options.http1IdleTimeout
    connectionsCap = options.mostConnections
    mostConnectionsInAll = options.mostConnectionsInAll
    mostPendingCalls = options.mostPendingCalls
    var resolving = options.resolving
    resolving.timeout = options.connectTimeout
    resolving.backoff = options.backoff
    self.resolving = resolving
    ownService = options.service
    service = options.service
    let keepalive = options.keepaliveTime.map {
      Keepalive(interval: $0, timeout: options.keepaliveTimeout, withoutCalls: options.keepaliveWithoutCalls)
    }
    super.init(limits, silence: options.silence, options.backoff, keepalive)
  }

  enum Steps {
    /// The first step; nil: HTTP begins on the connected socket itself.
    case made(ConnectStep?)
    case failed(ByteBuffer)
  }

  /// Makes the steps for one new connection. `verifier`: the program's own check of the server's certificates.
  func steps(to endpoint: Endpoint, _ verifier: ServerVerifier?) -> Steps {
    let dialogue = proxyStep(to: endpoint)
    guard let tls else { return .made(dialogue) }
    guard let engine = TLSEngine.make(tls.context, host: target.host.view) else {
      return .failed(TLSContext.reason("TLS could not be set up for the connection"))
    }
    engine.verifier = verifier
    guard let dialogue else { return .made(TLSStep(engine)) }
    dialogue.next = TLSStep(engine)
    return .made(dialogue)
  }

  /// The dialogue with the proxy; nil: there is none.
  private func proxyStep(to endpoint: Endpoint) -> ConnectStep? {
    guard let (proxy, aim) = asked(for: endpoint), forwarding(to: endpoint) == nil else { return nil }
    switch proxy.kind {
    case .http: return TunnelStep(aim, proxy, userAgent)
    case .socks: return SocksStep(aim, proxy)
    }
  }

  /// How requests to the endpoint are written if a proxy of HTTP forwards each of them (RFC 9112 section 3.2.2); nil: none
  /// does.
  func forwarding(to endpoint: Endpoint) -> ForwardedRequests? {
    guard endpoint.way == .named, tls == nil, http != .http2, !hasOwnAuthority,
      let (proxy, aim) = asked(for: endpoint),
      case .http = proxy.kind
    else { return nil }
    return ForwardedRequests(to: aim.text, credentials: proxy.basicCredentials)
  }

  /// The proxy to the endpoint, and the server that it is asked for; nil: there is no proxy.
  private func asked(for endpoint: Endpoint) -> (Proxy, ProxyAim)? {
    guard let proxy else { return nil }
    switch (endpoint.way, target.location) {
    case (.straight, _): return nil
    case (.named, .name(let host, let port)): return (proxy, .name(host, port: port))
    case (.through, _), (.named, .addresses): return (proxy, .address(endpoint.address))
    }
  }
}
