import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockNames

/// Builds a DNS answer byte by byte (RFC 1035 section 4.1).
struct DNSMessage {
  private(set) var bytes: [UInt8] = [0, 1, 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0]

  init() {
    name("_grpc._tcp.orders.example")
    numbers(33, 1)
  }

  mutating func numbers(_ values: Int...) {
    for value in values { bytes += [UInt8(value >> 8 & 0xFF), UInt8(value & 0xFF)] }
  }

  mutating func name(_ text: String) { bytes += DNSMessage.labels(text) + [0] }

  static func labels(_ text: String) -> [UInt8] {
    text.split(separator: ".").flatMap { [UInt8($0.utf8.count)] + Array($0.utf8) }
  }

  /// Adds a record. Its name is a pointer to the name in the question.
  mutating func record(type: Int = 33, family: Int = 1, _ data: [UInt8]) {
    bytes[7] += 1
    bytes += [0xC0, 12]
    numbers(type, family, 0, 60, data.count)
    bytes += data
  }

  mutating func service(_ priority: Int, _ weight: Int, _ port: Int, _ host: String) {
    service(priority, weight, port, DNSMessage.labels(host) + [0])
  }

  mutating func service(_ priority: Int, _ weight: Int, _ port: Int, _ host: [UInt8]) {
    let numbers = [priority, weight, port].flatMap { [UInt8($0 >> 8), UInt8($0 & 0xFF)] }
    record(numbers + host)
  }

  var buffer: ByteBuffer { bytes.withUnsafeBytes { ByteBuffer(copying: $0)! } }
}

/// All records of an answer, in the order in which `take` returns them with random numbers from `randoms`.
/// Each is a text "PRIORITY SHARE PORT HOST".
func taken(_ answer: ByteBuffer, _ randoms: () -> UInt64 = { 0 }) -> [String] {
  var records = ServiceRecords(answer)
  var texts: [String] = []
  let host = ByteBuffer()
  while let record = records.take(random: randoms(), into: host) {
    #expect(host.view.last == 0)
    texts.append(
      "\(record.priority) \(record.share) \(record.port) \(text(ByteView(rebasing: host.view.dropLast()))!)")
  }
  return texts
}

@Suite struct ServiceRecordsTests {
  @Test func golden() {
    var message = DNSMessage()
    message.service(20, 3, 50051, "c.example")
    // The host's name in the record above is not compressed, as RFC 2782 ("Target") demands. In the record
    // below it is compressed, as some servers send it: "b" and a pointer to "orders.example".
    message.service(10, 0, 50052, [1, 0x62, 0xC0, 23])
    message.record(type: 1, [127, 0, 0, 1])
    message.record(type: 5, DNSMessage.labels("alias.example") + [0])
    message.record(family: 3, [0, 1, 0, 1, 0, 1, 1, 0x61, 0])
    message.service(10, 65535, 443, "a_1.example")
    #expect(
      Set(taken(message.buffer)) == [
        "10 4194240 443 a_1.example.", "10 1 50052 b.orders.example.", "20 192 50051 c.example.",
      ])
  }

  @Test func byPriority() {
    var message = DNSMessage()
    for priority in [7, 0, 65535, 3, 7, 256] { message.service(priority, 1, priority, "p.example") }
    var random: UInt64 = 1
    for _ in 0..<50 {
      let ports = taken(message.buffer) {
        random = random &* 6_364_136_223_846_793_005 &+ 1
        return random >> 20
      }.map { $0.split(separator: " ")[2] }
      #expect(ports == ["0", "3", "7", "7", "256", "65535"])
    }
  }

  /// Each record is the first one in proportion to its weight; a record with weight 0 hardly ever is.
  @Test func byWeight() {
    var message = DNSMessage()
    for weight in [0, 1, 2, 5] { message.service(1, weight, weight, "w.example") }
    var firsts: [Substring: Int] = [:]
    for random in 0..<UInt64(64 * 8 + 1) {
      firsts[taken(message.buffer) { random }[0].split(separator: " ")[2], default: 0] += 1
    }
    #expect(firsts == ["0": 1, "1": 64, "2": 128, "5": 320])
  }

  @Test(arguments: [
    [0], [1, 0x2E, 0], [3, 0x61, 0x2E, 0x62, 0], [1, 0, 0], [1, 0x25, 0], [1, 0xFF, 0],
    // The first three names have a pointer to itself, a pointer forward, and two pointers in a circle.
    [0xC0, 61], [0xC0, 63, 0, 0], [1, 0x61, 0xC0, 61], [0xC0, 0xFF], [0xC0], [0x40, 0], [0x80, 0], [2, 0x61],
    [64] + [UInt8](repeating: 0x61, count: 64) + [0],
    Array([[UInt8]](repeating: [63] + [UInt8](repeating: 0x61, count: 63), count: 5).joined()) + [0],
    [],
  ])
  func namesThatAreNone(_ host: [UInt8]) {
    var message = DNSMessage()
    message.service(1, 1, 1, host)
    #expect(message.bytes.count == 61 + host.count)
    #expect(taken(message.buffer).isEmpty)
    // A valid record in the same answer is still returned.
    message.service(1, 1, 2, "b")
    #expect(taken(message.buffer) == ["1 64 2 b."])
  }

  @Test func theLongestNameAndTheMostRecords() {
    var message = DNSMessage()
    let label = String(repeating: "a", count: 63)
    let name = [label, label, label, String(repeating: "b", count: 61)].joined(separator: ".")
    message.service(1, 1, 1, name)
    #expect(taken(message.buffer) == ["1 64 1 \(name)."])
    var many = DNSMessage()
    for index in 0..<255 { many.service(1, 1, index, "a") }
    #expect(taken(many.buffer).count == 255)
  }

  /// From an answer that is cut off, the complete records are returned.
  @Test func everyPrefix() {
    var message = DNSMessage()
    var ends: [Int] = []
    for port in 1...3 {
      message.service(port, 1, port, "h\(port).example")
      ends.append(message.bytes.count)
    }
    for count in 0...message.bytes.count {
      let cut = message.bytes[..<count].withUnsafeBytes { ByteBuffer(copying: $0)! }
      #expect(taken(cut).count == ends.count { $0 <= count }, "\(count) bytes")
    }
  }

  @Test func randomBytesNeverTrap() {
    var random = SystemRandomNumberGenerator()
    var message = DNSMessage()
    message.service(1, 1, 1, "a.example")
    message.service(1, 1, 2, [1, 0x62, 0xC0, 23])
    for _ in 0..<3_000 {
      var bytes = message.bytes
      for _ in 0..<Int.random(in: 1...6, using: &random) {
        let place = Int.random(in: 0..<bytes.count, using: &random)
        bytes[place] = UInt8.random(in: 0...255, using: &random)
      }
      if Bool.random(using: &random) { bytes.removeLast(Int.random(in: 0..<bytes.count, using: &random)) }
      let answer = bytes.withUnsafeBytes { ByteBuffer(copying: $0)! }
      for record in taken(answer, { random.next() }) {
        let name = host(of: record)
        #expect(HostName.flaw(name.view) == nil, "\(bytes)")
      }
    }
  }

  private func host(of record: String) -> ByteBuffer {
    PenstockTestSupport.bytes(String(record.split(separator: " ")[3]))
  }
}
