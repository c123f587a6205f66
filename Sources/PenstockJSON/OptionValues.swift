import CPenstockJansson
import PenstockCall
import PenstockChannel
import PenstockReady
import PenstockTransport
import PenstockWire
import PenstockNames
import PenstockClient
import PenstockFraming

// The types of options. Each function reads a member of a JSON object and checks its bounds; its failure says
// what was expected. The rows of Options.swift and ReadyOptions.swift use these functions, and
// scripts/options knows their names.

/// Allows the keys in the rows of an option table to be the cases of a `switch`.
public func ~= (name: StaticString, key: ByteView) -> Bool { bytesEqual(key, name) }

extension JSONReader {
  /// Reads a whole number that has no unit.
  public func count(_ range: ClosedRange<Int>, _ into: (Int) -> Void) -> Failure? {
    guard value.pointee.type == JSON_INTEGER else { return fail(range, got: nil) }
    let number = Int(json_integer_value(value))
    guard range.contains(number) else { return fail(range, got: number) }
    into(number)
    return nil
  }

  /// Reads a number of bytes.
  func bytes(_ range: ClosedRange<Int> = 0...2_147_483_647, _ into: (Int) -> Void) -> Failure? {
    count(range, into)
  }

  func microseconds(_ range: ClosedRange<Int>, _ into: (UInt32) -> Void) -> Failure? {
    count(range) { into(UInt32(truncatingIfNeeded: $0)) }
  }

  /// Reads a time in milliseconds, and passes it on in nanoseconds.
  func milliseconds(_ range: ClosedRange<Int>, _ into: (UInt64) -> Void) -> Failure? {
    count(range) { into(UInt64($0) * 1_000_000) }
  }

  /// Reads a time limit in milliseconds, and passes it on in nanoseconds; null becomes nil.
  func deadline(_ into: (UInt64?) -> Void) -> Failure? {
    if isNull {
      into(nil)
      return nil
    }
    return int(0...Int.max / 1_000_000, "milliseconds from 0, or null") { into(UInt64($0) * 1_000_000) }
  }

  /// Reads one of `words`, which have a space between them, and passes its index on. The first word has to be the
  /// default, because scripts/options relies on that.
  func choice(_ words: StaticString, into: (Int) -> Void) -> Failure? {
    let expected = ByteBuffer()
    var rest = words.bytes
    var index = 0
    while true {
      let end = rest.firstIndex(of: 0x20) ?? rest.endIndex
      let word = ByteView(rebasing: rest[..<end])
      if let string, bytesEqual(string, word) {
        into(index)
        return nil
      }
      let isLast = end == rest.endIndex
      if index > 0 { _ = expected.append(isLast ? " or " : ", ") }
      _ = expected.append("\"") && expected.append(word) && expected.append("\"")
      if isLast { return fail(expected, hasType: string != nil) }
      rest = ByteView(rebasing: rest[(end + 1)...])
      index += 1
    }
  }

  /// Reads the value of a header: visible ASCII and spaces, but no space at either end.
  func ascii(_ into: (ByteBuffer) -> Void) -> Failure? {
    guard let string, HeaderRules.isValidASCIIValue(string) else {
      return fail("visible ASCII, without a space at its ends", hasType: string != nil)
    }
    return self.string(into)
  }

  /// Reads a value for ":authority": visible ASCII, not empty.
  func authority(_ into: (ByteBuffer) -> Void) -> Failure? {
    guard let string, !string.isEmpty, string.allSatisfy({ $0 > 0x20 && $0 < 0x7f }) else {
      return fail("a host, or host:port", hasType: string != nil)
    }
    return self.string(into)
  }

  /// Reads the word for one of the library's compressions, or the name of a compressor that the program has made. For
  /// "zstd" loads its library.
  func compression(_ into: (Compression) -> Void) -> Failure? {
    if let own = string.flatMap({ ProgramCompressor.compression(named: $0) }) {
      into(own)
      return nil
    }
    if let failure = choice(Compression.words, into: { _ in }) { return failure }
    let chosen = string.flatMap { Compression(named: $0) } ?? .identity
    guard chosen != .zstd || Zstd.load() else {
      return Failure(
        .unsupported, path.view, (": the system has no " as StaticString).bytes, Zstd.file.bytes, path: path)
    }
    into(chosen)
    return nil
  }

  /// Reads the URL of a proxy, "environment", or null.
  func proxy(_ into: (ProxyChoice) -> Void) -> Failure? {
    let expected: StaticString = "a URL such as \"http://proxy.example:3128\", \"environment\", or null"
    if isNull { return nil }
    guard let string else { return fail(expected) }
    if bytesEqual(string, "environment") {
      into(.environment)
      return nil
    }
    switch Proxy.parse(string) {
    case .failed(let words):
      return fail(because: ("it is not the URL of a proxy: " as StaticString).bytes, words.bytes)
    case .noMemory: return Failure(.noMemory, "no memory")
    case .proxy(let proxy):
      into(.given(proxy))
      return nil
    }
  }

  /// Reads an array of hosts, domains and ranges of addresses.
  func hosts(_ into: (ProxyExceptions) -> Void) -> Failure? {
    var all = ProxyExceptions()
    let failure = elements { one in
      let expected: StaticString = "a host, a domain, an IP address, a range such as \"10.0.0.0/8\", or \"*\""
      guard let string = one.string else { return one.fail(expected) }
      switch all.add(string) {
      case .added: return nil
      case .malformed: return one.fail(expected, hasType: true)
      case .noMemory: return Failure(.noMemory, "no memory")
      }
    }
    if failure == nil { into(all) }
    return failure
  }

  /// Reads an IP address of this machine, or an object with one of a family or of each.
  func localAddress(_ into: (SocketAddress) -> Void) -> Failure? {
    guard isObject else {
      return address("an IP address, or an object with \"ipv4\" or \"ipv6\"", into) { _ in true }
    }
    var isEmpty = true
    let failure = members { key, option in
      isEmpty = false
      switch key {
      case "ipv4": return option.address("an IPv4 address", into) { $0.isIPv4 }
      case "ipv6": return option.address("an IPv6 address", into) { $0.isIPv6 }
      default: return option.unknown
      }
    }
    return failure ?? (isEmpty ? fail("an object with \"ipv4\" or \"ipv6\"", hasType: true) : nil)
  }

  private func address(
    _ expected: StaticString, _ into: (SocketAddress) -> Void, _ fits: (SocketAddress) -> Bool
  ) -> Failure? {
    // The zone of an IPv6 address is the business of the option "bind_interface".
    guard let string, !string.contains(0x25), let address = SocketAddress(literal: string, port: 0),
      fits(address)
    else { return fail(expected, hasType: self.string != nil) }
    into(address)
    return nil
  }

  /// Reads the name of a network interface.
  func interface(_ into: (ByteBuffer) -> Void) -> Failure? {
    guard let string, 1...15 ~= string.count,
      string.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != 0x2F && $0 != 0x3A })
    else { return fail("the name of a network interface, such as \"eth0\"", hasType: string != nil) }
    return self.string(into)
  }

  /// Reads an array of arrays of three whole numbers.
  func triples(_ into: (Int, Int, Int) -> Void) -> Failure? {
    elements { one in
      var numbers: [Int] = []
      if let failure = one.elements({ $0.count(-2_147_483_648...2_147_483_647) { numbers.append($0) } }) {
        return failure
      }
      guard numbers.count == 3 else {
        return one.fail("an array of three numbers: level, option and value", hasType: true)
      }
      into(numbers[0], numbers[1], numbers[2])
      return nil
    }
  }

  /// Reads an array of at least one element.
  private func some(
    _ expected: StaticString, _ into: ([ByteBuffer]) -> Void, _ read: (ByteView) -> ByteBuffer?
  ) -> Failure? {
    var all: [ByteBuffer] = []
    let failure = elements { one in
      guard let string = one.string, let element = read(string) else {
        return one.fail(expected, hasType: one.string != nil)
      }
      all.append(element)
      return nil
    }
    if let failure { return failure }
    if all.isEmpty { return fail("an array that is not empty", hasType: true) }
    into(all)
    return nil
  }

  /// Reads an array of SHA-256 hashes in base64, and passes on the hashes.
  func pins(_ into: ([ByteBuffer]) -> Void) -> Failure? {
    some("a SHA-256 hash in base64, of 44 characters", into) { string in
      let hash = ByteBuffer()
      return string.count == 44 && Base64.decode(string, into: hash) == .ok && hash.count == 32 ? hash : nil
    }
  }

  /// Reads a host name or an IP address that certificates are for, or an array of 1 to 16 of them.
  func serverNames(_ into: ([ByteBuffer]) -> Void) -> Failure? {
    var names: [ByteBuffer] = []
    if !isArray {
      let expected: StaticString = "a host name or an IP address, or an array of 1 to 16 of these"
      if let failure = serverName(expected, { names.append($0) }) { return failure }
    } else {
      guard 1...16 ~= count else { return fail("an array of 1 to 16 names", hasType: true) }
      let failure = elements { $0.serverName("a host name or an IP address") { names.append($0) } }
      if let failure { return failure }
    }
    into(names)
    return nil
  }

  private func serverName(_ expected: StaticString, _ into: (ByteBuffer) -> Void) -> Failure? {
    guard let string else { return fail(expected) }
    if SocketAddress(literal: string, port: 0) == nil, let flaw = HostName.flaw(string) {
      return fail(because: flaw.bytes)
    }
    return self.string(into)
  }

  /// Reads an array of SPIFFE ids (SPIFFE-ID section 2).
  func spiffeIDs(_ into: ([ByteBuffer]) -> Void) -> Failure? {
    some("a SPIFFE id, such as \"spiffe://example.org/shop\"", into) { string in
      JSONReader.isSPIFFE(string) ? ByteBuffer(copying: string) : nil
    }
  }

  private static func isSPIFFE(_ text: ByteView) -> Bool {
    let scheme = "spiffe://" as StaticString
    let size = scheme.utf8CodeUnitCount
    guard text.count > size, text.count <= 2048, bytesEqual(ByteView(rebasing: text.prefix(size)), scheme)
    else {
      return false
    }
    var isDomain = true
    var before: UInt8 = 0x2F
    for byte in text.dropFirst(size) {
      switch byte {
      case 0x61...0x7A, 0x30...0x39, 0x2D, 0x2E, 0x5F: break
      case 0x41...0x5A: if isDomain { return false }
      case 0x2F:
        if before == 0x2F { return false }
        isDomain = false
      default: return false
      }
      before = byte
    }
    return before != 0x2F
  }

  /// Reads an array of names of capital letters, digits, hyphens and underscores.
  func words(_ into: ([ByteBuffer]) -> Void) -> Failure? {
    some("the name of a cipher suite", into) { string in
      let isName = string.allSatisfy { byte in
        switch byte {
        case 0x41...0x5A, 0x30...0x39, 0x2D, 0x5F: true
        default: false
        }
      }
      return isName && !string.isEmpty && string.count <= 64 ? ByteBuffer(copying: string) : nil
    }
  }

  /// Reads the name of an encoding, and passes on the content-type that names it; nil: the name is empty.
  func encoding(_ into: (ByteBuffer?) -> Void) -> Failure? {
    guard let string, string.isEmpty || HeaderRules.isValidName(string) else {
      return fail("the name of an encoding, such as \"json\"", hasType: string != nil)
    }
    let type = string.isEmpty ? nil : RequestLabels.contentType(string)
    into(type)
    return type == nil && !string.isEmpty ? Failure(.noMemory, "no memory") : nil
  }

  /// Reads labels of a host name, such as "_grpc._tcp"; the text may be empty.
  func labels(_ into: (ByteBuffer) -> Void) -> Failure? {
    guard let string, string.isEmpty || HostName.flaw(string) == nil && string.last != 0x2E else {
      return fail("labels of a host name, such as \"_grpc._tcp\", or \"\"", hasType: string != nil)
    }
    return self.string(into)
  }

  /// Reads an object with header fields. For null, `into` is not called.
  func credentials(_ into: (Metadata) -> Void) -> Failure? {
    if isNull { return nil }
    let fields = Metadata()
    if let failure = read(self, into: fields) { return failure }
    guard fields.count > 0 else { return fail("an object with a header field, or null", hasType: true) }
    fields.isReadOnly = true
    into(fields)
    return nil
  }

  /// Reads the option "trace": true, false, or {"events": n}. Passes on how many events a trace keeps; 0: no
  /// trace.
  func trace(_ into: (Int) -> Void) -> Failure? {
    if !isObject {
      return bool("true, false or an object with \"events\"") { into($0 ? TraceLog.defaultEvents : 0) }
    }
    var events = TraceLog.defaultEvents
    let failure = members { key, option in
      bytesEqual(key, "events") ? option.count(1...65536) { events = $0 } : option.unknown
    }
    if failure == nil { into(events) }
    return failure
  }

  /// Reads a number, which may have a fraction.
  func number(_ range: ClosedRange<Double>, _ expected: StaticString, _ into: (Double) -> Void) -> Failure? {
    let found: Double
    switch value.pointee.type {
    case JSON_INTEGER: found = Double(json_integer_value(value))
    case JSON_REAL: found = json_real_value(value)
    default: return fail(expected)
    }
    guard range.contains(found) else { return fail(expected, hasType: true) }
    into(found)
    return nil
  }

  /// Reads a percentage, and passes it on as a probability.
  func percent(_ into: (Chance) -> Void) -> Failure? {
    number(0...100, "a number from 0 to 100") { into(Chance(percent: $0)) }
  }

  /// Reads a seed: the number with which a sequence of random numbers begins.
  func seed(_ into: (UInt64) -> Void) -> Failure? { count(0...Int.max) { into(UInt64($0)) } }

  /// Reads a status code other than OK, by name or number.
  func code(_ into: (StatusCode) -> Void) -> Failure? {
    let expected: StaticString = "the name or number of a status other than OK"
    if value.pointee.type == JSON_INTEGER {
      return int(1...16, expected) { number in StatusCode(rawValue: Int32(number)).map(into) }
    }
    for number in 1...16 as ClosedRange<Int32> {
      if let string, let code = StatusCode(rawValue: number), bytesEqual(string, code.name) {
        into(code)
        return nil
      }
    }
    return fail(expected, hasType: string != nil)
  }

  /// Reads the name of a header, and passes it on in lower case.
  func headerName(_ into: (ByteBuffer) -> Void) -> Failure? {
    guard let string else { return fail("a header's name") }
    let lowered = ByteBuffer()
    guard HeaderRules.lowercased(string, into: lowered) else { return Failure(.noMemory, "no memory") }
    guard HeaderRules.isValidName(lowered.view) else { return fail("a header's name", hasType: true) }
    into(lowered)
    return nil
  }

  /// Reads the name of a header whose value may be any text: it is neither a "-bin" name nor reserved.
  func textHeaderName(_ into: (ByteBuffer) -> Void) -> Failure? {
    var header: ByteBuffer?
    if let failure = headerName({ header = $0 }) { return failure }
    guard let header, !HeaderRules.isReserved(header.view), !HeaderRules.isBinary(header.view) else {
      return fail("a header's name that is neither reserved nor binary", hasType: true)
    }
    into(header)
    return nil
  }

  /// Reads an array of header names.
  func headerNames(_ into: ([ByteBuffer]) -> Void) -> Failure? {
    var names: [ByteBuffer] = []
    if let failure = elements({ one in one.headerName { names.append($0) } }) { return failure }
    into(names)
    return nil
  }
}
