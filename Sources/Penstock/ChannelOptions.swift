/// The options of a channel. An option that is nil has the library's default, which docs/options.md lists with the bounds.
public struct ChannelOptions: Sendable, Hashable {
  /// The protocol of the calls.
  public enum RPCProtocol: String, Sendable, CaseIterable {
    /// gRPC, over HTTP/2.
    case grpc
    /// gRPC-Web.
    case grpcWeb = "grpc-web"
    /// gRPC-Web with its bodies in base64.
    case grpcWebText = "grpc-web-text"
    /// The Connect protocol.
    case connect
  }
  /// The version of HTTP.
  public enum HTTPVersion: String, Sendable, CaseIterable {
    /// The server chooses in TLS; in cleartext gRPC uses HTTP/2 and the other protocols HTTP/1.1.
    case auto
    /// HTTP/2.
    case http2 = "2"
    /// HTTP/1.1.
    case http1 = "1.1"
  }
  /// The order of interceptors with equal priority.
  public enum TieOrder: String, Sendable, CaseIterable {
    /// The one that was added first sees a request first.
    case fifo
    /// The one that was added last sees a request first.
    case lifo
  }

  /// TLS; nil: with the roots of the system, but none for a unix socket and an http:// URL.
  public var tls: TLSOptions?
  /// The protocol of the calls.
  public var rpcProtocol: RPCProtocol?
  /// The version of HTTP.
  public var http: HTTPVersion?
  /// The longest path, with its query, of an HTTP GET, in bytes; 0: each call is a POST.
  public var maxGetURLBytes: Int?
  /// The largest number of HTTP/1.1 connections to one address.
  public var http1MaxConnections: Int?
  /// How long a connection of HTTP/1.1 is kept without a call.
  public var http1IdleTimeout: Duration?
  /// The authority of the requests.
  public var authority: String?
  /// The proxy that connects to the server, a URL such as "http://user:password@host:port" or "socks5://host:port";
  /// "environment": the one that the process's environment variables name.
  public var proxy: String?
  /// The hosts that are reached without the proxy: names, domains, addresses, ranges such as "10.0.0.0/8", or "*".
  public var noProxy: [String]?
  /// The address of this machine from which connections are made.
  public var localAddress: LocalAddress?
  /// The network interface through which connections are made, such as "eth0".
  public var bindInterface: String?
  /// Options of the sockets that the library opens.
  public var socketOptions: SocketOptions?
  /// The name of the messages' encoding in the content-type, for calls that name none.
  public var contentSubtype: String?
  /// The text before "penstock/VERSION" in the user agent.
  public var userAgent: String?
  /// The time from creation to deadline of calls that have no timeout of their own.
  public var defaultTimeout: Duration?
  /// The limit of one received message after decompression, in bytes.
  public var maxReceiveMessageBytes: Int?
  /// The limit of one sent message, in bytes.
  public var maxSendMessageBytes: Int?
  /// The compression of sent messages.
  public var compression: Compression?
  /// The size from which messages are compressed, in bytes.
  public var compressionMinBytes: Int?
  /// The limit of one header list, in bytes as HTTP/2 counts them.
  public var maxHeaderListBytes: Int?
  /// How long one attempt to connect, or one look-up of the name, may take.
  public var connectTimeout: Duration?
  /// Whether calls wait, instead of failing, while the channel can't connect.
  public var waitsForReady: Bool?
  /// gRPC's service config, as JSON.
  public var serviceConfig: String?
  /// Whether the retry policies of the service config apply.
  public var retries: Bool?
  /// How many bytes of messages a call keeps in case its request has to be sent again.
  public var replayBytes: Int?
  /// How many bytes of messages all calls of the channel keep for that.
  public var channelReplayBytes: Int?
  /// The largest number of HTTP/2 connections to one address.
  public var maxConnectionsPerSubchannel: Int?
  /// The largest number of connections of the channel to all addresses together; 0: without limit.
  public var maxConnections: Int?
  /// The largest number of calls that wait for a connection or for a free stream; a further one ends with
  /// `resourceExhausted`. 0: without limit.
  public var maxPendingCalls: Int?
  /// How many bytes of messages all client streams and bidi calls together may have given to the library that are not sent
  /// yet, before each of them has room for one message only; 0: without limit.
  public var maxBufferedBytes: Int?
  /// Whether servers are asked for their health if the service config has a healthCheckConfig.
  public var healthChecks: Bool?
  /// How old a connection becomes before new calls go to another one.
  public var maxConnectionAge: Duration?
  /// How long the channel keeps its connections without a call.
  public var idleTimeout: Duration?
  /// The wait after the first attempt to connect that fails.
  public var initialBackoff: Duration?
  /// The longest wait between the beginnings of two attempts to connect.
  public var maxBackoff: Duration?
  /// The factor by which each further wait between attempts is longer.
  public var backoffMultiplier: Double?
  /// The largest fraction by which a wait is made longer or shorter at random.
  public var backoffJitter: Double?
  /// Finds the servers by SRV records of DNS: this value and the target's host make the records' name.
  public var dnsSRV: String?
  /// The least time between two look-ups of the name.
  public var minResolveInterval: Duration?
  /// The time after which the name is looked up again.
  public var resolveInterval: Duration?
  /// How long a connection with calls may be silent before it is pinged.
  public var keepaliveTime: Duration?
  /// How long a connection may be silent after it was pinged, before its calls end with UNAVAILABLE.
  public var keepaliveTimeout: Duration?
  /// Whether connections without calls are pinged, too.
  public var keepaliveWithoutCalls: Bool?
  /// How long a connection with calls is silent before interceptors are told.
  public var silenceEvent: Duration?
  /// How long a callback of a call may keep its thread before interceptors are told.
  public var slowCallback: Duration?
  /// The window of a stream in bytes: how much of it may wait unread, until the windows grow.
  public var initialStreamWindowBytes: Int?
  /// The window of a connection in bytes.
  public var initialConnectionWindowBytes: Int?
  /// The size in bytes up to which the windows of streams grow on a long path; 0: they keep their sizes.
  public var maxWindowBytes: Int?
  /// Whether each call keeps a trace.
  public var trace: Trace?
  /// The order of interceptors with equal priority.
  public var tieOrder: TieOrder?

  /// Makes options; those that are not given have the library's defaults.
  public init(tls: TLSOptions? = nil) { self.tls = tls }

  /// Options without TLS.
  public static let cleartext = ChannelOptions(tls: .off)

  var text: OptionText {
    var text = OptionText()
    text.set("protocol", rpcProtocol?.rawValue)
    text.set("http", http?.rawValue)
    text.set("max_get_url_bytes", maxGetURLBytes)
    text.set("http1_max_connections", http1MaxConnections)
    text.set("http1_idle_timeout_ms", http1IdleTimeout)
    text.set(json: "tls", tls?.text)
    text.set("authority", authority)
    text.set("proxy", proxy)
    text.set("no_proxy", noProxy)
    text.set("local_address", localAddress?.text)
    text.set("bind_interface", bindInterface)
    text.set("socket_options", socketOptions?.text)
    text.set("content_subtype", contentSubtype)
    text.set("user_agent", userAgent)
    text.set("default_deadline_ms", defaultTimeout)
    text.set("max_receive_message_bytes", maxReceiveMessageBytes)
    text.set("max_send_message_bytes", maxSendMessageBytes)
    text.set("compression", compression?.rawValue)
    text.set("compression_min_bytes", compressionMinBytes)
    text.set("max_header_list_bytes", maxHeaderListBytes)
    text.set("connect_timeout_ms", connectTimeout)
    text.set("wait_for_ready", waitsForReady)
    text.set(json: "service_config", serviceConfig)
    text.set("retries", retries)
    text.set("replay_bytes", replayBytes)
    text.set("channel_replay_bytes", channelReplayBytes)
    text.set("max_connections_per_subchannel", maxConnectionsPerSubchannel)
    text.set("max_connections", maxConnections)
    text.set("max_pending_calls", maxPendingCalls)
    text.set("max_buffered_bytes", maxBufferedBytes)
    text.set("health_checks", healthChecks)
    text.set("max_connection_age_ms", maxConnectionAge)
    text.set("idle_timeout_ms", idleTimeout)
    text.set("initial_backoff_ms", initialBackoff)
    text.set("max_backoff_ms", maxBackoff)
    text.set("backoff_multiplier", backoffMultiplier)
    text.set("backoff_jitter", backoffJitter)
    text.set("dns_srv", dnsSRV)
    text.set("min_resolve_interval_ms", minResolveInterval)
    text.set("resolve_interval_ms", resolveInterval)
    text.set("keepalive_time_ms", keepaliveTime)
    text.set("keepalive_timeout_ms", keepaliveTimeout)
    text.set("keepalive_without_calls", keepaliveWithoutCalls)
    text.set("silence_event_ms", silenceEvent)
    text.set("slow_callback_ms", slowCallback)
    text.set("initial_stream_window_bytes", initialStreamWindowBytes)
    text.set("initial_connection_window_bytes", initialConnectionWindowBytes)
    text.set("max_window_bytes", maxWindowBytes)
    text.set(json: "trace", trace?.text)
    text.set("tie_order", tieOrder?.rawValue)
    return text
  }
}

/// TLS of a channel.
public enum TLSOptions: Sendable, Hashable {
  /// Cleartext.
  case off
  /// TLS with what the value says.
  case on(Certificates)

  /// TLS with the roots of the system.
  public static let system = TLSOptions.on(Certificates())
  /// TLS that trusts these certificates, in PEM form.
  public static func roots(pem: String) -> TLSOptions { .on(Certificates(rootsPEM: pem)) }

  /// The certificates that a channel trusts and shows. Each text in PEM form can also be given as a file.
  public struct Certificates: Sendable, Hashable {
    /// The certificates to trust; nil: those of the system.
    public var rootsPEM: String?
    /// A file with the certificates to trust.
    public var rootsFile: String?
    /// The client's own certificate, and the chain to its root.
    public var certificateChainPEM: String?
    /// A file with the client's own certificate and its chain.
    public var certificateChainFile: String?
    /// The private key of the client's certificate.
    public var privateKeyPEM: String?
    /// A file with the private key.
    public var privateKeyFile: String?
    /// The names of which the server's certificate has to have one, 1 to 16; the first is sent. nil: the target's
    /// host.
    public var serverNames: [String]?
    /// Whether the server's certificate is verified.
    public var verifies: Bool?
    /// Lists of revoked certificates.
    public var crlsPEM: String?
    /// A file with lists of revoked certificates.
    public var crlsFile: String?
    /// SHA-256 hashes of public keys in base64, of which the server's chain has to have one.
    public var spkiPins: [String]?
    /// The SPIFFE ids of which the server's certificate has to have one, in place of the host's name.
    public var spiffeIDs: [String]?
    /// Whether later connections resume the TLS sessions of earlier ones.
    public var sessionResumption: Bool?
    /// The oldest version of TLS that is allowed: "1.2" or "1.3".
    public var minVersion: String?
    /// The cipher suites that are allowed, by OpenSSL's names.
    public var ciphers: [String]?
    /// A file to which the keys of each connection are appended.
    public var keyLogFile: String?

    /// The first of `serverNames`; setting it sets all of them.
    public var serverName: String? {
      get { serverNames?.first }
      set { serverNames = newValue.map { [$0] } }
    }

    /// Makes a value that trusts `rootsPEM`.
    public init(rootsPEM: String? = nil) { self.rootsPEM = rootsPEM }

    var text: OptionText {
      var text = OptionText()
      text.set("roots_pem", rootsPEM)
      text.set("roots_file", rootsFile)
      text.set("certificate_chain_pem", certificateChainPEM)
      text.set("certificate_chain_file", certificateChainFile)
      text.set("private_key_pem", privateKeyPEM)
      text.set("private_key_file", privateKeyFile)
      text.set("server_name", serverNames)
      text.set("verify", verifies)
      text.set("crls_pem", crlsPEM)
      text.set("crls_file", crlsFile)
      text.set("spki_pins", spkiPins)
      text.set("spiffe_ids", spiffeIDs)
      text.set("session_resumption", sessionResumption)
      text.set("min_version", minVersion)
      text.set("ciphers", ciphers)
      text.set("key_log_file", keyLogFile)
      return text
    }
  }

  var text: String {
    switch self {
    case .off: "false"
    case .on(let certificates): certificates.text.finished
    }
  }
}
