import CPenstockSystem
import PenstockNames
import PenstockWire

/// The settings of a channel for the sockets that the library opens.
public struct SocketSettings {
  /// The sockets for which an option is meant.
  private enum Kind { case any, network, ipv4, ipv6 }

  /// An option as setsockopt takes it, whose value is a whole number. `key`: its name in the channel's options.
  private struct Option {
    var kind: Kind
    var level: Int32
    var name: Int32
    var value: Int32
    var key: StaticString
  }

  private var options: [Option] = []
  /// The addresses of this machine that sockets get, of each family; nil: the system chooses.
  private var localIPv4: SocketAddress?
  private var localIPv6: SocketAddress?
  /// The name of the network interface; nil: the system's routes decide.
  public var interface: ByteBuffer?

  public init() {}

  // MARK: What the options say

  public mutating func bind(_ address: SocketAddress) {
    if address.isIPv4 { localIPv4 = address } else { localIPv6 = address }
  }

  public mutating func setNoDelay(_ on: Bool) {
    add(.network, CS_LEVEL_TCP, TCP_NODELAY, on ? 1 : 0, "tcp_nodelay")
  }

  public mutating func setSendBuffer(_ bytes: Int) {
    add(.any, CS_LEVEL_SOCKET, SO_SNDBUF, bytes, "send_buffer_bytes")
  }

  public mutating func setReceiveBuffer(_ bytes: Int) {
    add(.any, CS_LEVEL_SOCKET, SO_RCVBUF, bytes, "receive_buffer_bytes")
  }

  /// `time`: in nanoseconds, as the next one.
  public mutating func setUserTimeout(_ time: UInt64) {
    add(.network, CS_LEVEL_TCP, TCP_USER_TIMEOUT, Int(clamping: time / 1_000_000), "tcp_user_timeout_ms")
  }

  public mutating func setKeepalive(_ idle: UInt64) {
    let key: StaticString = "tcp_keepalive_ms"
    add(.network, CS_LEVEL_SOCKET, SO_KEEPALIVE, 1, key)
    add(.network, CS_LEVEL_TCP, TCP_KEEPIDLE, Int(clamping: idle / 1_000_000_000), key)
  }

  public mutating func setTrafficClass(_ value: Int) {
    add(.ipv4, CS_LEVEL_IP, IP_TOS, value, "traffic_class")
    add(.ipv6, CS_LEVEL_IPV6, IPV6_TCLASS, value, "traffic_class")
  }

  /// Adds any other option, for sockets of IP; one of IPv6 is for sockets of IPv6 only, as others refuse it.
  public mutating func setOther(_ level: Int, _ name: Int, _ value: Int) {
    add(
      level == Int(CS_LEVEL_IPV6) ? .ipv6 : .network, Int32(clamping: level), Int32(clamping: name), value,
      "others")
  }

  private mutating func add(_ kind: Kind, _ level: Int32, _ name: Int32, _ value: Int, _ key: StaticString) {
    options.append(Option(kind: kind, level: level, name: name, value: Int32(clamping: value), key: key))
  }

  // MARK: Their effect

  /// Sets up a socket that is about to connect to `address`. Returns the reason in words if that fails, otherwise nil.
  func apply(to descriptor: Int32, for address: SocketAddress) -> ByteBuffer? {
    for option in options where SocketSettings.fits(option.kind, address) {
      let code = cs_set_option(descriptor, option.level, option.name, option.value)
      if code != 0 { return SocketSettings.failure("socket_options.", option.key, code) }
    }
    guard address.isIPv4 || address.isIPv6 else { return nil }
    if let interface {
      let code = cs_bind_device(descriptor, interface.view.baseAddress, UInt32(interface.count))
      if code != 0 { return SocketSettings.failure("", "bind_interface", code) }
    }
    guard localIPv4 != nil || localIPv6 != nil else { return nil }
    guard let local = address.isIPv4 ? localIPv4 : localIPv6 else {
      let text = ByteBuffer().say("the option local_address has no address of ")
      return text.say(address.isIPv4 ? "IPv4" : "IPv6")
    }
    let code = local.withRaw { cs_bind_local(descriptor, $0, $1) }
    return code == 0 ? nil : SocketSettings.failure("", "local_address", code)
  }

  private static func fits(_ kind: Kind, _ address: SocketAddress) -> Bool {
    switch kind {
    case .any: true
    case .network: address.isIPv4 || address.isIPv6
    case .ipv4: address.isIPv4
    case .ipv6: address.isIPv6
    }
  }

  private static func failure(_ outer: StaticString, _ key: StaticString, _ code: Int32) -> ByteBuffer {
    ByteBuffer().say("the option ").say(outer).say(key).say(": ").say(errno: -code)
  }
}
