import CSystem
import PenstockWire

/// The hosts that are reached without a proxy, as the environment variable "no_proxy" lists them.
public struct ProxyExceptions {
  private var entries: [ByteBuffer] = []

  public init() {}

  /// Adds an entry: "*", a host, a domain with or without a dot before it, an IP address, or a range such as
  /// "10.0.0.0/8". False: no memory.
  public mutating func add(_ entry: ByteView) -> Bool {
    guard let copy = ByteBuffer(copying: entry) else { return false }
    entries.append(copy)
    return true
  }

  /// Adds the entries of a list, between which there are commas and spaces. False: no memory.
  public mutating func add(list: ByteView) -> Bool {
    var start = 0
    for index in 0...list.count where index == list.count || list[index] == 0x2C || list[index] <= 0x20 {
      if index > start, !add(ByteView(rebasing: list[start..<index])) { return false }
      start = index + 1
    }
    return true
  }

  /// Whether `host`, a name or an IP address without brackets, is among them.
  public func covers(_ host: ByteView) -> Bool {
    let plain = HostName.forTLS(host)
    let address = SocketAddress(literal: plain, port: 0)
    for entry in entries {
      if bytesEqual(entry.view, "*") { return true }
      if let address {
        if address.isWithin(entry.view) { return true }
      } else if ProxyExceptions.matches(plain, domain: entry.view) {
        return true
      }
    }
    return false
  }

  /// Whether `name` is `domain`, or a name within it.
  private static func matches(_ name: ByteView, domain entry: ByteView) -> Bool {
    var domain = HostName.forTLS(entry)
    if domain.first == 0x2A { domain = ByteView(rebasing: domain.dropFirst()) }
    if domain.first == 0x2E { domain = ByteView(rebasing: domain.dropFirst()) }
    guard !domain.isEmpty, name.count >= domain.count else { return false }
    let end = ByteView(rebasing: name.suffix(domain.count))
    for (one, other) in zip(end, domain) where lowercase(one) != lowercase(other) { return false }
    return name.count == domain.count || name[name.count - domain.count - 1] == 0x2E
  }
}

extension SocketAddress {
  /// The bytes of an IP address; nil: the address is no IP address.
  public var bytes: [UInt8]? {
    let (offset, count) = family == AF_INET ? (4, 4) : (8, 16)
    guard family == AF_INET || family == AF_INET6 else { return nil }
    return withRaw { raw, _ in Array(UnsafeRawBufferPointer(start: raw + offset, count: count)) }
  }

  /// Whether the address is the one that `range` names, or is in a range such as "10.0.0.0/8".
  fileprivate func isWithin(_ range: ByteView) -> Bool {
    let slash = range.firstIndex(of: 0x2F)
    guard let mine = bytes,
      let base = SocketAddress(literal: ByteView(rebasing: range[..<(slash ?? range.count)]), port: 0),
      let theirs = base.bytes, theirs.count == mine.count
    else { return false }
    guard let slash else { return mine == theirs }
    var bits = 0
    guard slash + 1 < range.count, range.count - slash < 5 else { return false }
    for digit in range[(slash + 1)...] {
      guard digit >= 0x30, digit <= 0x39 else { return false }
      bits = bits * 10 + Int(digit - 0x30)
    }
    guard bits <= mine.count * 8 else { return false }
    for index in 0..<mine.count where bits > index * 8 {
      let mask = UInt8(truncatingIfNeeded: 0xFF00 >> min(8, bits - index * 8))
      if (mine[index] ^ theirs[index]) & mask != 0 { return false }
    }
    return true
  }
}
