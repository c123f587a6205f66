import PenstockWire
import Testing

/// Messages with their prefixes (gRPC over HTTP2, "Length-Prefixed-Message").
@Suite struct MessagesTests {
  struct Message: Equatable {
    var body: [UInt8]
    var compressed: Bool
  }

  struct Result: Equatable {
    var messages: [Message] = []
    var failure: MessageDecoder.Failure?
    var isMidMessage = false
  }

  static func wire(_ message: Message) -> [UInt8] {
    var prefix = [UInt8](repeating: 0xEE, count: MessagePrefix.size)
    prefix.withUnsafeMutableBytes {
      MessagePrefix.write(
        compressed: message.compressed, length: UInt32(message.body.count), to: $0.baseAddress!)
    }
    return prefix + message.body
  }

  /// Decodes a stream that comes in these pieces. `placed`: bytes are put directly into the message's storage
  /// whenever the decoder offers it (`space`).
  static func decode(_ stream: [UInt8], in pieces: [Range<Int>], limit: Int, placed: Bool = false) -> Result {
    var decoder = MessageDecoder(limit: limit)
    var result = Result()
    for piece in pieces {
      with(Array(stream[piece])) { (view: ByteView) in
        var rest = view
        repeat {
          var input = rest
          if placed, let place = decoder.space() {
            input = ByteView(rebasing: ByteView(place).prefix(rest.count))
            place.copyMemory(from: ByteView(rebasing: rest.prefix(input.count)))
          }
          let (consumed, event) = decoder.push(input)
          rest = ByteView(rebasing: rest[consumed...])
          switch event {
          case .needsMore: #expect(consumed == input.count)
          case .message(let body, let compressed):
            result.messages.append(Message(body: bytes(body.view), compressed: compressed))
          case .failed(let failure):
            result.failure = failure
            return
          }
        } while !rest.isEmpty
      }
      if result.failure != nil { break }
    }
    result.isMidMessage = decoder.isMidMessage
    return result
  }

  /// Decodes a stream in one piece. Checks that the result is the same if the stream comes byte by byte, or
  /// in two pieces of any sizes.
  static func decodeEveryWay(_ stream: [UInt8], limit: Int = 1_000) -> Result {
    let whole = decode(stream, in: [0..<stream.count], limit: limit)
    #expect(decode(stream, in: stream.indices.map { $0..<$0 + 1 }, limit: limit) == whole)
    for cut in 0...stream.count {
      #expect(decode(stream, in: [0..<cut, cut..<stream.count], limit: limit) == whole)
      #expect(decode(stream, in: [0..<cut, cut..<stream.count], limit: limit, placed: true) == whole)
    }
    return whole
  }

  @Test(
    arguments: [
      (0, false, "0000000000"), (1, true, "0100000001"), (0x0102_0304, false, "0001020304"),
      (0xFFFF_FFFF, true, "01ffffffff"),
    ] as [(UInt32, Bool, String)])
  func prefixVectors(length: UInt32, compressed: Bool, expected: String) {
    var place = [UInt8](repeating: 0xEE, count: 6)
    place.withUnsafeMutableBytes {
      MessagePrefix.write(compressed: compressed, length: length, to: $0.baseAddress!)
    }
    #expect(place == hex(expected) + [0xEE])
  }

  @Test func oneMessage() {
    let result = Self.decodeEveryWay(hex("00 00000003 616263"))
    #expect(result == Result(messages: [Message(body: bytes("abc"), compressed: false)]))
  }

  @Test func emptyMessages() {
    let result = Self.decodeEveryWay(hex("00 00000000 01 00000000"))
    #expect(result.messages == [Message(body: [], compressed: false), Message(body: [], compressed: true)])
    #expect(!result.isMidMessage)
  }

  @Test func coalescedMessages() {
    let result = Self.decodeEveryWay(hex("00 00000001 61 01 00000002 6262 00 00000000 00 00000003 636363"))
    #expect(result.messages.map(\.body) == [bytes("a"), bytes("bb"), [], bytes("ccc")])
    #expect(result.messages.map(\.compressed) == [false, true, false, false])
  }

  @Test(arguments: ["00", "00000000", "00 00000002", "00 00000002 61", "00 00000000 01"])
  func endInTheMiddleIsSeen(stream: String) {
    let result = Self.decodeEveryWay(hex(stream))
    #expect(result.isMidMessage)
    #expect(result.failure == nil)
  }

  @Test func nothingConsumedIsNotMidMessage() {
    var decoder = MessageDecoder(limit: 10)
    #expect(!decoder.isMidMessage)
    let (consumed, event) = decoder.push(ByteView(start: nil, count: 0))
    #expect(consumed == 0)
    guard case .needsMore = event else {
      Issue.record("an empty push gave \(event)")
      return
    }
    #expect(!decoder.isMidMessage)
  }

  @Test func limitIsInclusive() {
    #expect(Self.decodeEveryWay(hex("00 00000003 616263"), limit: 3).messages.count == 1)
    let over = Self.decodeEveryWay(hex("00 00000004 61626364"), limit: 3)
    #expect(over == Result(failure: .tooLarge(length: 4, limit: 3)))
    let negative = Self.decodeEveryWay(hex("00 00000000"), limit: -1)
    #expect(negative.failure == .tooLarge(length: 0, limit: -1))
  }

  @Test func largestLengthIsRefusedBeforeAllocation() {
    let result = Self.decodeEveryWay(hex("00 ffffffff 00"), limit: 4 << 20)
    #expect(result.failure == .tooLarge(length: .max, limit: 4_194_304))
  }

  /// A peer that announces a message of 4 GiB, which the limit allows, and sends only a few bytes makes the
  /// decoder use little memory.
  @Test func announcedLengthIsNotAllocatedAtOnce() {
    let result = Self.decodeEveryWay(hex("00 ffffffff 6162"), limit: Int.max)
    #expect(result.failure == nil)
    #expect(result.isMidMessage)
  }

  @Test(arguments: [2, 0x80, 0xFF] as [UInt8])
  func otherFlagsAreMalformed(flag: UInt8) {
    #expect(Self.decodeEveryWay([flag, 0, 0, 0, 0]).failure == .badFlag(flag))
    let second = Self.decodeEveryWay(hex("00 00000001 61") + [flag])
    #expect(second.messages.count == 1)
    #expect(second.failure == .badFlag(flag))
  }

  @Test func failureIsFinal() {
    var decoder = MessageDecoder(limit: 10)
    _ = with([9]) { decoder.push($0) }
    with(hex("00 00000000")) {
      let (consumed, event) = decoder.push($0)
      #expect(consumed == 0)
      guard case .failed(.badFlag(9)) = event else {
        Issue.record("a failed decoder gave \(event)")
        return
      }
    }
    #expect(!decoder.isMidMessage)
  }

  @Test func pushStopsAtTheEndOfOneMessage() {
    var decoder = MessageDecoder(limit: 10)
    with(hex("00 00000001 61 00 00000001 62")) { #expect(decoder.push($0).consumed == 6) }
  }

  @Test func largeMessageInSmallPieces() {
    let body = [UInt8](repeating: 0x5A, count: 3_000_001)
    let stream = Self.wire(Message(body: body, compressed: true))
    let pieces = stride(from: 0, to: stream.count, by: 16_384).map { $0..<min($0 + 16_384, stream.count) }
    for placed in [false, true] {
      let result = Self.decode(stream, in: pieces, limit: 4 << 20, placed: placed)
      #expect(result.messages == [Message(body: body, compressed: true)])
    }
  }

  @Test func randomStreamsRoundTripInAnyPieces() {
    var random = Random()
    for _ in 0..<1_000 {
      var messages: [Message] = []
      for _ in 0..<random.below(6) {
        messages.append(Message(body: random.bytes(upTo: 300), compressed: random.below(2) == 0))
      }
      let stream = messages.flatMap(Self.wire)
      let placed = random.below(2) == 0
      let result = Self.decode(stream, in: random.pieces(of: stream.count), limit: 300, placed: placed)
      #expect(result == Result(messages: messages), "PENSTOCK_SEED=\(Seed.value)")
    }
  }

  @Test func randomBytesGiveTheSameInAnyPieces() {
    var random = Random()
    for _ in 0..<rounds {
      // Most of the bytes are zeros and ones, so that prefixes are often valid.
      let stream = random.bytes(upTo: 60, of: "\0\0\0\0\u{1}\u{2}a")
      let whole = Self.decode(stream, in: [0..<stream.count], limit: 600)
      #expect(
        Self.decode(stream, in: random.pieces(of: stream.count), limit: 600, placed: random.below(2) == 0)
          == whole,
        "PENSTOCK_SEED=\(Seed.value)")
    }
  }
}
