import CPenstockSystem
public import PenstockWire

/// An address to connect to: an IP address with a port, a unix socket, or a vsock (a socket between a virtual
/// machine and its host).
public struct SocketAddress: Equatable {
  public private(set) var storage: sockaddr_storage
  public private(set) var length: UInt32

  /// Copies an address that a system call has filled in; nil: `length` can't be the length of an address.
  public init?(_ address: UnsafeRawPointer, length: UInt32) {
    var storage = sockaddr_storage()
    guard length >= 2, length <= UInt32(MemoryLayout<sockaddr_storage>.size) else { return nil }
    memcpy(&storage, address, Int(length))
    self.storage = storage
    self.length = length
  }

  /// An IPv4 or IPv6 address from text, without brackets; nil: the text is neither.
  public init?(literal: ByteView, port: UInt16) {
    var storage = sockaddr_storage()
    let length = withTerminated(literal, limit: 64) { cs_address_literal(&storage, $0, port) } ?? 0
    guard length > 0 else { return nil }
    self.storage = storage
    self.length = length
  }

  /// The address of a unix socket: a path, or a NUL followed by a name in the abstract namespace. nil: it is
  /// empty, too long, or a path that contains a NUL.
  public init?(unixPath path: ByteView) {
    var storage = sockaddr_storage()
    guard let base = path.baseAddress else { return nil }
    let length = cs_address_unix(&storage, base, path.count)
    guard length > 0 else { return nil }
    self.storage = storage
    self.length = length
  }

  /// The address of a vsock: a socket of a virtual machine, or of its host (vsock(7)).
  public init(vsock cid: UInt32, port: UInt32) {
    var storage = sockaddr_storage()
    length = cs_address_vsock(&storage, cid, port)
    self.storage = storage
  }

  public static func == (one: SocketAddress, other: SocketAddress) -> Bool {
    guard one.length == other.length else { return false }
    return one.withRaw { mine, length in other.withRaw { bytes, _ in memcmp(mine, bytes, Int(length)) == 0 } }
  }

  public var family: Int32 { Int32(storage.ss_family) }
  public var isUnix: Bool { family == AF_UNIX }
  public var isIPv4: Bool { family == AF_INET }
  public var isIPv6: Bool { family == AF_INET6 }
  /// The port of an IP address; 0 for other addresses.
  public var port: UInt16 {
    var copy = storage
    return cs_address_port(&copy)
  }

  /// `withRaw` and `withTerminated` are `@inlinable` because they are generic: so the compiler can specialise
  /// them in other modules.
  @inlinable
  public func withRaw<R>(_ body: (UnsafeRawPointer, UInt32) -> R) -> R {
    withUnsafePointer(to: storage) { body(UnsafeRawPointer($0), length) }
  }

  /// The address as text, such as "1.2.3.4:5", "[::1]:5", "[fe80::1%2]:5", "unix:/path", "unix-abstract:name"
  /// or "vsock:2:5". A target with this text is this address: in paths a "%" and control characters are
  /// percent-encoded.
  public func text() -> [UInt8] {
    var out: [UInt8] = []
    withUnsafePointer(to: storage) { storage in
      if isUnix {
        let offset = UInt32(cs_address_path_offset())
        guard length > offset, let path = cs_address_path(storage) else { return append("unix:", to: &out) }
        let bytes = UnsafeRawBufferPointer(start: path, count: Int(length - offset))
        let isAbstract = bytes[0] == 0
        append(isAbstract ? "unix-abstract:" : "unix:", to: &out)
        for byte in bytes.dropFirst(isAbstract ? 1 : 0) where byte != 0 || isAbstract {
          if byte < 0x20 || byte == 0x25 || byte == 0x7F {
            out.append(0x25)
            for digit in [byte >> 4, byte & 15] { out.append(digit < 10 ? 0x30 + digit : 0x37 + digit) }
          } else {
            out.append(byte)
          }
        }
        return
      }
      if family == AF_VSOCK {
        append("vsock:", to: &out)
        appendDecimal(cs_address_vsock_cid(storage), to: &out)
        out.append(0x3A)
        return appendDecimal(cs_address_vsock_port(storage), to: &out)
      }
      withUnsafeTemporaryAllocation(of: CChar.self, capacity: 64) { text in
        guard let base = text.baseAddress else { return }
        cs_address_text(storage, base, 64)
        let isSix = family == AF_INET6
        if isSix { out.append(0x5B) }
        for i in 0..<strlen(base) { out.append(UInt8(bitPattern: base[i])) }
        let scope = cs_address_scope(storage)
        if scope != 0 {
          out.append(0x25)
          appendDecimal(scope, to: &out)
        }
        if isSix { out.append(0x5D) }
        out.append(0x3A)
        appendDecimal(UInt32(cs_address_port(storage)), to: &out)
      }
    }
    return out
  }
}

private func append(_ text: StaticString, to out: inout [UInt8]) {
  for i in 0..<text.utf8CodeUnitCount { out.append(text.utf8Start[i]) }
}

private func appendDecimal(_ value: UInt32, to out: inout [UInt8]) {
  if value >= 10 { appendDecimal(value / 10, to: &out) }
  out.append(0x30 + UInt8(value % 10))
}

/// Calls `body` with `bytes` as a C string. Returns nil if `bytes` is longer than `limit` or contains a NUL.
@inlinable
public func withTerminated<R>(_ bytes: ByteView, limit: Int, _ body: (UnsafePointer<CChar>) -> R) -> R? {
  guard bytes.count <= limit, !bytes.contains(0) else { return nil }
  return withUnsafeTemporaryAllocation(byteCount: bytes.count + 1, alignment: 1) { copy -> R? in
    guard let base = copy.baseAddress else { return nil }
    if let from = bytes.baseAddress { memcpy(base, from, bytes.count) }
    copy[bytes.count] = 0
    return body(UnsafePointer(base.assumingMemoryBound(to: CChar.self)))
  }
}
