import PenstockCall
import PenstockChannel
import PenstockWire

/// The choice of HTTP's version.
public enum HTTPChoice: UInt8, Sendable {
  /// The server chooses in TLS (ALPN). In cleartext gRPC uses HTTP/2, and the other protocols HTTP/1.1.
  case auto
  case http2, http1
}

/// The part of channel.h's "options" about the transport; the ABI parses JSON into it. Defaults of calls (deadline, message
/// limits, compression) travel with each call's `Request`.
public struct ChannelOptions {
  /// The TLS options; nil: cleartext.
  public var tls: TLSOptions? = TLSOptions() {
    didSet { usesDefaultTLS = false }
  }
  /// Whether the user has not set TLS: then a channel on a unix socket has none.
  private(set) var usesDefaultTLS = true
  /// The protocol of the calls.
  public var rpc = RPCProtocol.grpc
  public var http = HTTPChoice.auto
  /// The longest path, with its query, that a GET may have, in bytes; a call with a longer one is a POST.
  public var mostURLBytes = 8192
  /// The most connections of HTTP/1.1 to one address.
  public var http1Connections = 100
  /// How long a connection of HTTP/1.1 is kept without a request, in nanoseconds.
  public var http1IdleTimeout: UInt64 = 90_000_000_000
  /// The authority that is sent instead of the target's; nil: the target's.
  public var authority: ByteBuffer?
  /// The text that stands before "penstock/VERSION" in the user agent.
  public var userAgent: ByteBuffer?
  /// The library's version, in static storage.
  public var version = ("0" as StaticString).bytes
  public var maxHeaderListBytes = 16384
  public var connectTimeout: UInt64 = 20_000_000_000
  /// How long the channel keeps its connection without a call, in nanoseconds; 0: without limit.
  public var idleTimeout: UInt64 = 1_800_000_000_000
  /// How old a connection becomes before new calls go to another one, in nanoseconds; 0: there is no limit.
  public var maxConnectionAge: UInt64 = 0
  /// The waits between attempts to connect to one address.
  public var backoff = Backoff.Policy()
  /// The labels before the target's host in the name of the SRV records; empty: the host's own records; nil: no SRV
  /// records are used.
  public var services: ByteBuffer?
  /// When the target's name is looked up.
  public var resolving = ResolveState.Policy()
  /// The service config that is used if the resolver gives none.
  public var service = ServiceConfig()
  /// The most connections to one address that a service config can demand.
  public var mostConnections = 10
  /// Whether servers are asked for their health if the service config asks for it.
  public var checksHealth = true
  /// How long a connection may be silent before it is pinged, in nanoseconds; nil: it never is pinged.
  public var keepaliveTime: UInt64?
  public var keepaliveTimeout: UInt64 = 20_000_000_000
  public var keepaliveWithoutCalls = false
  /// How long a connection with calls is silent before `on_connection` is told, in nanoseconds; 0: it is not told.
  public var silence: UInt64 = 30_000_000_000
  /// The window of each stream, 65535 to 2147483647 bytes.
  public var initialStreamWindow = 1 << 20
  public var initialConnectionWindow = 4 << 20
  /// How large windows may grow, in bytes; 0: not at all.
  public var mostWindow = 0

  public init() {}
}
