import PenstockWire
import Testing

/// Frames that are marked as the last one (Connect, "Streaming-Response"; gRPC-Web, trailers), and messages
/// without a prefix.
@Suite struct LastFrameTests {
  /// The events of a stream that comes in pieces of `step` bytes: messages with "*" behind compressed ones
  /// and "!" behind last ones, and the words of a failure.
  private func events(_ stream: [UInt8], limit: Int, flag: UInt8, step: Int) -> [String] {
    var decoder = MessageDecoder(limit: limit, lastFlag: flag)
    var events: [String] = []
    var rest = stream[...]
    while !rest.isEmpty {
      let piece = Array(rest.prefix(step))
      let (used, event) = with(piece) { decoder.push($0) }
      rest = rest.dropFirst(used)
      switch event {
      case .needsMore: #expect(used == piece.count)
      case .message(let body, let compressed):
        events.append("\(body.count)\(compressed ? "*" : "")\(decoder.isLast ? "!" : "")")
      case .failed(.badFlag(let flag)): return events + ["flag \(flag)"]
      case .failed(.tooLarge(let length, let limit)): return events + ["\(length) over \(limit)"]
      case .failed(.noMemory): return events + ["no memory"]
      }
    }
    return events
  }

  private func frame(_ flags: UInt8, _ size: Int) -> [UInt8] {
    [flags] + (0..<4).reversed().map { UInt8(size >> ($0 * 8) & 0xFF) }
      + [UInt8](repeating: 0x61, count: size)
  }

  private static let flagged: [(UInt8, [UInt8], [String])] = [
    (UInt8(2), [UInt8(0), 2], ["1", "1!"]), (2, [1, 3], ["1*", "1*!"]), (2, [2], ["1!"]), (2, [3], ["1*!"]),
    (2, [4], ["flag 4"]), (2, [6], ["flag 6"]), (2, [0x82], ["flag 130"]),
    (2, [0, 0x80], ["1", "flag 128"]),
    (0x80, [0, 0x80], ["1", "1!"]), (0x80, [1, 0x81], ["1*", "1*!"]), (0x80, [2], ["flag 2"]),
    (0x80, [0x82], ["flag 130"]), (0, [0, 1], ["1", "1*"]), (0, [2], ["flag 2"]), (0, [0x80], ["flag 128"]),
  ]

  @Test(arguments: flagged)
  func flags(_ last: UInt8, _ flags: [UInt8], _ expected: [String]) {
    for step in [1, 3, 1000] {
      let stream = flags.flatMap { frame($0, 1) }
      #expect(events(stream, limit: 10, flag: last, step: step) == expected, "step \(step)")
    }
  }

  private static let limited: [(UInt8, Int, Int, String)] = [
    (UInt8(2), 16384, 10, "16384!"), (2, 16385, 10, "16385 over 10"), (0, 11, 10, "11 over 10"),
    (0, 10, 10, "10"), (2, 20000, 20000, "20000!"), (2, 20001, 20000, "20001 over 20000"),
    (3, 11, 0, "11*!"),
  ]

  /// The last frame may have 16384 bytes, whatever the limit for messages; above that the limit counts.
  @Test(arguments: limited)
  func limits(_ flags: UInt8, _ size: Int, _ limit: Int, _ expected: String) {
    for step in [1000, 100_000] {
      #expect(events(frame(flags, size), limit: limit, flag: 2, step: step) == [expected], "step \(step)")
    }
  }

  /// `missing` counts down to the end of the prefix, and then of the message.
  @Test func missingBytes() {
    var decoder = MessageDecoder(limit: 10)
    var missing: [Int] = [decoder.missing]
    for byte in frame(0, 3) {
      _ = with([byte]) { decoder.push($0) }
      missing.append(decoder.missing)
    }
    #expect(missing == [5, 4, 3, 2, 1, 3, 2, 1, 5])
    _ = with([9]) { decoder.push($0) }
    #expect(decoder.missing == 0 && !decoder.isMidMessage && decoder.space() == nil)
  }

  @Test(arguments: [false, true])
  func messagesWithoutPrefix(_ isCertain: Bool) {
    var decoder = MessageDecoder(limit: 10)
    decoder.expect(5, isCertain: isCertain)
    #expect(decoder.isMidMessage && decoder.missing == 5)
    _ = with("abc") { decoder.push($0) }
    #expect(decoder.missing == 2)
    let (used, event) = with("defg") { decoder.push($0) }
    guard case .message(let body, compressed: false) = event else {
      Issue.record("\(event)")
      return
    }
    #expect(used == 2 && text(body) == "abcde" && !decoder.isMidMessage && decoder.missing == 5)
    #expect(decoder.cut().isEmpty)
    decoder.expect(9, isCertain: isCertain)
    _ = with("xy") { decoder.push($0) }
    #expect(text(decoder.cut()) == "xy" && !decoder.isMidMessage && decoder.cut().isEmpty)
  }

  /// The room for a message is never larger than what is missing of it.
  @Test func spaceEndsWithTheMessage() throws {
    var decoder = MessageDecoder(limit: 100)
    #expect(decoder.space() == nil)
    _ = with(frame(0, 70).prefix(6).map { $0 }) { decoder.push($0) }
    #expect(try #require(decoder.space()).count == 69)
    _ = with([UInt8](repeating: 1, count: 68)) { decoder.push($0) }
    #expect(try #require(decoder.space()).count == 1)
  }
}
