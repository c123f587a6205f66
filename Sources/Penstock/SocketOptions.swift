/// The addresses of this machine from which a channel's connections are made; a connection to an address of a family
/// without one fails.
public struct LocalAddress: Sendable, Hashable {
  /// The address for connections to IPv4 addresses.
  public var ipv4: String?
  /// The address for connections to IPv6 addresses.
  public var ipv6: String?

  /// Makes an address, or one of each family.
  public init(ipv4: String? = nil, ipv6: String? = nil) {
    self.ipv4 = ipv4
    self.ipv6 = ipv6
  }

  var text: OptionText {
    var text = OptionText()
    text.set("ipv4", ipv4)
    text.set("ipv6", ipv6)
    return text
  }
}

/// Options of the sockets that the library opens for a channel; those that are nil have the system's values.
public struct SocketOptions: Sendable, Hashable {
  /// An option as setsockopt takes it.
  public struct Other: Sendable, Hashable {
    /// The level, such as IPPROTO_TCP.
    public var level: Int32
    /// The number of the option.
    public var option: Int32
    /// The value.
    public var value: Int32

    /// Makes an option.
    public init(level: Int32, option: Int32, value: Int32) {
      self.level = level
      self.option = option
      self.value = value
    }
  }

  /// Whether TCP sends small writes at once; nil: it does.
  public var tcpNoDelay: Bool?
  /// The size of the kernel's send buffer in bytes, which the kernel doubles.
  public var sendBufferBytes: Int?
  /// The size of the kernel's receive buffer in bytes, which the kernel doubles.
  public var receiveBufferBytes: Int?
  /// How long sent bytes may wait for TCP's acknowledgement.
  public var tcpUserTimeout: Duration?
  /// How long a connection is silent before the kernel probes whether the peer is there, in whole seconds.
  public var tcpKeepalive: Duration?
  /// The traffic class of the packets: a DSCP times 4.
  public var trafficClass: Int?
  /// All other options.
  public var others: [Other]?

  /// Makes options with the system's values.
  public init() {}

  var text: OptionText {
    var text = OptionText()
    text.set("tcp_nodelay", tcpNoDelay)
    text.set("send_buffer_bytes", sendBufferBytes)
    text.set("receive_buffer_bytes", receiveBufferBytes)
    text.set("tcp_user_timeout_ms", tcpUserTimeout)
    text.set("tcp_keepalive_ms", tcpKeepalive)
    text.set("traffic_class", trafficClass)
    let triples = others?.map { "[\($0.level),\($0.option),\($0.value)]" }
    text.set(json: "others", triples.map { "[\($0.joined(separator: ","))]" })
    return text
  }
}
