import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLink
import PenstockLoop
import PenstockNames

/// The transport's part of the "options" in channel.h. The ABI parses JSON into this struct. Defaults of
/// calls (deadline, message limits, compression) are in each call's `Request`.
public struct ChannelOptions {
  /// The TLS options; nil: cleartext.
  public var tls: TLSOptions? = TLSOptions() {
    didSet { usesDefaultTLS = false }
  }
  /// Whether `tls` still has its default value. In that case a channel to a unix socket has no TLS.
  private(set) var usesDefaultTLS = true
  /// The RPC protocol of the calls, such as gRPC.
  public var rpc = RPCProtocol.grpc
  public var http = HTTPChoice.auto
  /// The wanted HTTP version. With gRPC, `auto` means HTTP/2.
  var wantedHTTP: HTTPChoice { rpc.needsHTTP2 && http == .auto ? .http2 : http }
  /// The longest path of a GET request in bytes, with its query. A call with a longer path is sent as a POST.
  public var mostURLBytes = 8192
  /// The most connections of HTTP/1.1 to one address.
  public var http1Connections = 100
  /// The time in nanoseconds for which a connection of HTTP/1.1 without a request stays open.
  public var http1IdleTimeout: UInt64 = 90_000_000_000
  /// The authority that is sent in place of the target's authority; nil: the target's authority is sent.
  public var authority: ByteBuffer?
  /// The user's text before "penstock/VERSION" in the user agent.
  public var userAgent: ByteBuffer?
  /// The library's version, in static storage.
  public var version = ("0" as StaticString).bytes
  /// Whether answers may be compressed by zstd.
  public var acceptsZstd = false
  public var proxy = ProxyChoice.none
  /// The hosts that are reached without the proxy.
  public var proxyExceptions = ProxyExceptions()
  /// The settings of the sockets that the library opens.
  public var sockets = SocketSettings()
  public var maxHeaderListBytes = 16384
  public var connectTimeout: UInt64 = 20_000_000_000
  /// The time in nanoseconds without a call after which the channel closes its connections; 0: never.
  public var idleTimeout: UInt64 = 1_800_000_000_000
  /// The age in nanoseconds at which a connection gets no new calls, and new calls use another connection; 0:
  /// no limit.
  public var maxConnectionAge: UInt64 = 0
  /// The back-off delays between attempts to connect to one address.
  public var backoff = Backoff.Policy()
  /// The labels before the target's host in the name of the SRV records. Empty: the host name itself has the
  /// records. nil: no SRV records are used.
  public var services: ByteBuffer?
  /// The rules for when the target's name is looked up.
  public var resolving = ResolveState.Policy()
  /// The service config that applies if the resolver gives no service config.
  public var service = ServiceConfig()
  /// Whether the retry policies of the service config apply.
  public var retries = true
  /// The most connections to one address. A service config may allow fewer, but not more.
  public var mostConnections = 10
  /// The most connections of the channel, to all addresses together; 0: no limit.
  public var mostConnectionsInAll = 0
  /// The most calls that wait for a connection or for a free stream at the same time; 0: no limit.
  public var mostPendingCalls = 0
  /// Whether servers are asked for their health (grpc.health.v1) if the service config demands it.
  public var checksHealth = true
  /// The time in nanoseconds after which a silent connection is pinged; nil: no connection is pinged.
  public var keepaliveTime: UInt64?
  public var keepaliveTimeout: UInt64 = 20_000_000_000
  public var keepaliveWithoutCalls = false
  /// The time in nanoseconds after which a silent connection with calls is reported to `on_connection`; 0:
  /// never.
  public var silence: UInt64 = 30_000_000_000
  /// The initial receive window of each stream, 65535 to 2147483647 bytes.
  public var initialStreamWindow = 1 << 20
  public var initialConnectionWindow = 4 << 20
  /// The size in bytes up to which windows may grow; 0: windows do not grow.
  public var mostWindow = 32 << 20

  public init() {}
}

extension ChannelOptions {
  /// Finds the proxy for a channel to `target`. A target that is no host on the network needs none.
  func proxy(for target: Target, hasTLS: Bool) -> ProxyChoice.Found {
    if case .addresses(let list) = target.location, list.first?.bytes == nil { return .proxy(nil) }
    return proxy.find(target, hasTLS: hasTLS, proxyExceptions)
  }

  /// Whether the client looks up the target's name. If not, the proxy does.
  func looksUp(_ target: Target, _ proxy: Proxy) -> Bool {
    if case .addresses = target.location { return true }
    switch proxy.kind {
    case .http, .socks(looksUp: true): return services != nil
    case .socks(looksUp: false): return true
    }
  }
}
