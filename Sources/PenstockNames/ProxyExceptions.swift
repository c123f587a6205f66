import CPenstockSystem
import PenstockWire

/// The hosts that are reached without a proxy, as the environment variable "no_proxy" lists them.
public struct ProxyExceptions {
  private enum Host {
    case all
    /// A host's name, and those of the hosts within its domain.
    case domain(ByteBuffer)
    /// The IP addresses whose first `bits` bits are those of `bytes`.
    case range(bytes: [UInt8], bits: Int)
  }

  private struct Entry {
    let host: Host
    /// nil: every port.
    let port: UInt16?
  }

  public enum Added {
    case added
    /// It is no host, domain or range of addresses.
    case malformed
    case noMemory
  }

  private var entries: [Entry] = []

  public init() {}

  /// Adds an entry: "*", a host, a domain with or without a dot before it, an IP address, each of these with a port, or a
  /// range such as "10.0.0.0/8".
  public mutating func add(_ entry: ByteView) -> Added {
    if bytesEqual(entry, "*") {
      entries.append(Entry(host: .all, port: nil))
      return .added
    }
    if let slash = entry.firstIndex(of: 0x2F) {
      guard let range = ProxyExceptions.range(entry, slash) else { return .malformed }
      entries.append(Entry(host: range, port: nil))
      return .added
    }
    guard case .parts(let host, let port, _) = Target.split(entry) else { return .malformed }
    if let bytes = SocketAddress(literal: host, port: 0)?.plainBytes {
      entries.append(Entry(host: .range(bytes: bytes, bits: bytes.count * 8), port: port))
      return .added
    }
    var domain = HostName.forTLS(host)
    if domain.first == 0x2A { domain = ByteView(rebasing: domain.dropFirst()) }
    if domain.first == 0x2E { domain = ByteView(rebasing: domain.dropFirst()) }
    if HostName.flaw(domain) != nil { return .malformed }
    guard let copy = ByteBuffer(copying: domain) else { return .noMemory }
    entries.append(Entry(host: .domain(copy), port: port))
    return .added
  }

  /// Adds the entries of a list, between which there are commas and spaces; those that are malformed fit no host. False:
  /// no memory.
  public mutating func add(list: ByteView) -> Bool {
    var start = 0
    for index in 0...list.count where index == list.count || list[index] == 0x2C || list[index] <= 0x20 {
      if index > start, case .noMemory = add(ByteView(rebasing: list[start..<index])) { return false }
      start = index + 1
    }
    return true
  }

  /// Whether `host`, a name or an IP address without brackets, is among them.
  public func covers(_ host: ByteView, port: UInt16) -> Bool {
    let plain = HostName.forTLS(host)
    if let address = SocketAddress(literal: plain, port: port) { return covers(address) }
    return entries.contains { entry in
      guard entry.port == nil || entry.port == port else { return false }
      switch entry.host {
      case .all: return true
      case .domain(let domain): return ProxyExceptions.isWithin(plain, domain.view)
      case .range: return false
      }
    }
  }

  /// Whether an IP address is among them.
  public func covers(_ address: SocketAddress) -> Bool {
    guard let mine = address.plainBytes else { return false }
    return entries.contains { entry in
      guard entry.port == nil || entry.port == address.port else { return false }
      switch entry.host {
      case .all: return true
      case .domain: return false
      case .range(let bytes, let bits): return ProxyExceptions.isWithin(mine, bytes, bits)
      }
    }
  }

  /// Whether `name` is `domain`, or a name within it.
  private static func isWithin(_ name: ByteView, _ domain: ByteView) -> Bool {
    guard name.count >= domain.count else { return false }
    for (one, other) in zip(name.suffix(domain.count), domain) where lowercase(one) != lowercase(other) {
      return false
    }
    return name.count == domain.count || name[name.count - domain.count - 1] == 0x2E
  }

  private static func isWithin(_ mine: [UInt8], _ theirs: [UInt8], _ bits: Int) -> Bool {
    guard mine.count == theirs.count else { return false }
    for index in 0..<mine.count where bits > index * 8 {
      let mask = UInt8(truncatingIfNeeded: 0xFF00 >> min(8, bits - index * 8))
      if (mine[index] ^ theirs[index]) & mask != 0 { return false }
    }
    return true
  }

  /// Parses a range such as "10.0.0.0/8"; nil: it is none.
  private static func range(_ text: ByteView, _ slash: Int) -> Host? {
    let digits = text[(slash + 1)...]
    guard let base = SocketAddress(literal: ByteView(rebasing: text[..<slash]), port: 0)?.bytes,
      !digits.isEmpty,
      digits.count < 4
    else { return nil }
    var bits = 0
    for digit in digits {
      guard digit >= 0x30, digit <= 0x39 else { return nil }
      bits = bits * 10 + Int(digit - 0x30)
    }
    return bits <= base.count * 8 ? .range(bytes: base, bits: bits) : nil
  }
}

extension SocketAddress {
  /// The bytes of an IP address; nil: the address is no IP address.
  public var bytes: [UInt8]? {
    let (offset, count) = family == AF_INET ? (4, 4) : (8, 16)
    guard family == AF_INET || family == AF_INET6 else { return nil }
    return withRaw { raw, _ in Array(UnsafeRawBufferPointer(start: raw + offset, count: count)) }
  }

  /// As `bytes`; four bytes of an IPv6 address that stands for an IPv4 address (RFC 4291 section 2.5.5.2).
  fileprivate var plainBytes: [UInt8]? {
    guard let bytes else { return nil }
    let isMapped =
      bytes.count == 16 && bytes[..<10].allSatisfy { $0 == 0 } && bytes[10] == 0xFF && bytes[11] == 0xFF
    return isMapped ? Array(bytes[12...]) : bytes
  }
}
