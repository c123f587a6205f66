import CPenstockSystem
import PenstockWire

/// The SRV records of a DNS answer (RFC 1035 section 4.1, RFC 2782), in the order in which a client tries the
/// servers: by priority, and within a priority at random by weight. The answer may contain any bytes; records
/// that are cut off or malformed are left out.
public struct ServiceRecords {
  /// A record's priority, weight and port, and the offset of its host's name in the answer: 16 bits each.
  public struct Record {
    fileprivate let numbers: UInt64
    public var priority: UInt16 { UInt16(truncatingIfNeeded: numbers >> 48) }
    public var port: UInt16 { UInt16(truncatingIfNeeded: numbers >> 16) }
    /// The server's share of the calls, relative to the other servers of its priority. A server with weight 0
    /// gets by far the smallest share, but more than nothing (RFC 2782, "Weight").
    public var share: UInt32 {
      let weight = UInt32(truncatingIfNeeded: numbers >> 32) & 0xFFFF
      return weight == 0 ? 1 : weight << 6
    }
  }

  /// The largest number of records that are read; further ones are left out.
  private static let most = 256

  /// Replaces a record in the list that `take` has returned. No real record has this value, because no answer
  /// is long enough for such an offset.
  private static let taken = UInt64.max

  private let answer: ByteBuffer
  private var left: [UInt64] = []

  public init(_ answer: ByteBuffer) {
    self.answer = answer
    let host = ByteBuffer()
    var reader = DNSReader(answer.view)
    reader.skip(4)
    let questions = reader.number()
    let answers = reader.number()
    reader.skip(4)
    for _ in 0..<questions {
      reader.skipName()
      reader.skip(4)
    }
    for _ in 0..<answers where !reader.isAtEnd && left.count < ServiceRecords.most {
      reader.skipName()
      // An answer may also have CNAME records, which point from the name that was asked for to the name that
      // has the SRV records; they are skipped.
      let isService = reader.number() << 16 | reader.number() == 33 << 16 | 1
      reader.skip(4)
      let length = Int(reader.number())
      var record = reader
      reader.skip(length)
      guard isService, length > 6 else { continue }
      let numbers =
        record.number() << 48 | record.number() << 32 | record.number() << 16
        | UInt64(truncatingIfNeeded: record.at)
      // A record whose host has no name means that the service does not exist, so the record is left out.
      if read(numbers, into: host) { left.append(numbers) }
    }
  }

  /// Reads the host's name of a record into `host`. Returns false if the name is missing or not valid, or if
  /// there is no memory.
  private func read(_ numbers: UInt64, into host: ByteBuffer) -> Bool {
    host.removeAll(keepingCapacity: true)
    guard let room = host.spare(atLeast: Int(CS_HOST_SIZE)) else { return false }
    let view = answer.view
    let length = cs_dns_name(
      view.baseAddress, Int32(truncatingIfNeeded: view.count), Int32(truncatingIfNeeded: numbers & 0xFFFF),
      room.baseAddress)
    host.commit(Int(length))
    return length > 0 && HostName.flaw(ByteView(rebasing: host.view.dropLast())) == nil
  }

  /// Removes and returns the next record, and writes the name of its host, with a dot and a NUL at the end,
  /// to `host`. `random` is a random number. nil: no record is left, or there is no memory.
  public mutating func take(random: UInt64, into host: ByteBuffer) -> Record? {
    var least = UInt64.max
    var all: UInt64 = 0
    for numbers in left where numbers >> 48 <= least && numbers != ServiceRecords.taken {
      if numbers >> 48 < least { all = 0 }
      least = numbers >> 48
      all += UInt64(Record(numbers: numbers).share)
    }
    if all == 0 { return nil }
    var rest = random % all
    for place in left.indices where left[place] >> 48 == least && left[place] != ServiceRecords.taken {
      let record = Record(numbers: left[place])
      if rest < UInt64(record.share) {
        left[place] = ServiceRecords.taken
        return read(record.numbers, into: host) ? record : nil
      }
      rest -= UInt64(record.share)
    }
    return nil
  }
}

/// Reads the parts of a DNS message one after another. Beyond the message's end it reads zeros.
private struct DNSReader {
  private let bytes: ByteView
  private(set) var at = 0
  var isAtEnd: Bool { at == bytes.count }

  init(_ bytes: ByteView) { self.bytes = bytes }

  mutating func skip(_ count: Int) { at += min(count, bytes.count - at) }

  /// A number of 16 bits.
  mutating func number() -> UInt64 {
    guard bytes.count - at >= 2 else {
      at = bytes.count
      return 0
    }
    at += 2
    return UInt64(bytes[at - 2]) << 8 | UInt64(bytes[at - 1])
  }

  mutating func skipName() {
    let length = cs_dns_name_length(
      bytes.baseAddress, Int32(truncatingIfNeeded: bytes.count), Int32(truncatingIfNeeded: at))
    skip(length < 0 ? bytes.count : Int(length))
  }
}
