import PenstockWire
import PenstockHTTP

/// Finds the messages of a stream without storing them, for a call that only counts its messages.
struct MessageSkipper {
  private let limit: Int
  /// The number of received bytes of the prefix.
  private var have = 0
  private var isCompressed = false
  private var length: UInt32 = 0
  /// The number of received bytes of the message.
  private var passed = 0

  init(limit: Int) { self.limit = limit }

  var isMidMessage: Bool { have > 0 }

  /// Finds the end of the next message in `bytes`, as `MessageDecoder.push` does, but returns it as an empty
  /// message.
  mutating func push(_ bytes: ByteView) -> (consumed: Int, event: MessageDecoder.Event) {
    var used = 0
    while have < MessagePrefix.size {
      guard used < bytes.count else { return (used, .needsMore) }
      let byte = bytes[used]
      used += 1
      if have == 0 {
        if byte > 1 { return (used, .failed(.badFlag(byte))) }
        isCompressed = byte == 1
      } else {
        length = length << 8 | UInt32(byte)
      }
      have += 1
    }
    if Int(length) > limit { return (used, .failed(.tooLarge(length: length, limit: limit))) }
    let part = min(Int(length) - passed, bytes.count - used)
    passed += part
    used += part
    if passed < Int(length) { return (used, .needsMore) }
    have = 0
    passed = 0
    length = 0
    return (used, .message(ByteBuffer(), compressed: isCompressed))
  }
}
