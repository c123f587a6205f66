import CPenstockSystem
import Glibc
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockLoop

/// The bytes that arrive through a socket must be the bytes that were added to the queue, whatever the
/// lengths of the parts, and however many bytes the kernel accepts.
@Suite struct SendQueueTests {
  /// Bytes without a pattern. A number from the kernel for each byte would take most of the test's time.
  let noise: [UInt8] = {
    var random = SplitMix(state: .random(in: 0 ... .max))
    return (0..<100_000).map { _ in UInt8(truncatingIfNeeded: random.next()) }
  }()

  func fill(_ queue: SendQueue, _ random: inout SystemRandomNumberGenerator) -> [UInt8] {
    var expected: [UInt8] = []
    for _ in 0..<Int.random(in: 1...90, using: &random) {
      let size = [1, 9, 2047, 2048, 16384, 70000].randomElement(using: &random)!
      let first = Int.random(in: 0...(noise.count - size), using: &random)
      let bytes = Array(noise[first..<(first + size)])
      let own = bytes.withUnsafeBytes { ByteBuffer(copying: $0)! }
      let message = Bool.random(using: &random) ? own : own.lend()
      if Bool.random(using: &random) {
        #expect(queue.append(message.view))
        expected += bytes
      } else {
        let start = Int.random(in: 0..<size, using: &random)
        let count = Int.random(in: 1...(size - start), using: &random)
        #expect(queue.append(message, from: start, count: count))
        expected += bytes[start..<(start + count)]
      }
    }
    return expected
  }

  @Test(arguments: [false, true]) func everyByteInOrder(copies: Bool) throws {
    var random = SystemRandomNumberGenerator()
    var ends: [Int32] = [0, 0]
    try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
    defer { ends.forEach { cs_close($0) } }
    let queue = SendQueue(copies: copies)
    var place = [UInt8](repeating: 0, count: 100_000)
    for _ in 0..<20 {
      var expected = fill(queue, &random)
      // Adds more bytes after some bytes were sent.
      var left = expected.count
      var seen: [UInt8] = []
      var isRefilled = false
      while seen.count < expected.count {
        #expect(queue.count == left)
        let n = queue.isEmpty ? 0 : queue.send(to: ends[0])
        if n > 0 { left -= n } else if n < 0 { #expect(n == -Int(EAGAIN)) }
        if !isRefilled, left < expected.count {
          isRefilled = true
          let more = fill(queue, &random)
          expected += more
          left += more.count
        }
        let wanted = Int.random(in: 1...place.count, using: &random)
        let got = Int(cs_recv(ends[1], &place, wanted))
        if got > 0 { seen += place[..<got] }
      }
      #expect(seen == expected && queue.isEmpty)
    }
  }

  /// `send` makes as many system calls as the parts need, as long as the kernel accepts all bytes of each
  /// call.
  @Test func allThatTheKernelTakes() throws {
    var ends: [Int32] = [0, 0]
    try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
    defer { ends.forEach { cs_close($0) } }
    let queue = SendQueue(copies: false)
    let message = try #require([UInt8](repeating: 1, count: 2048).withUnsafeBytes { ByteBuffer(copying: $0) })
    let head = try #require([UInt8](repeating: 2, count: 9).withUnsafeBytes { ByteBuffer(copying: $0) })
    for _ in 0..<40 {
      #expect(queue.append(head.view))
      #expect(queue.append(message, from: 0, count: message.count))
    }
    #expect(queue.send(to: ends[0]) == 40 * 2057 && queue.isEmpty)
  }

  /// Returns the number of bytes in each system call of a `send`. On this kind of socket each system call
  /// makes one packet.
  func packets(_ queue: SendQueue) throws -> [Int] {
    var ends: [Int32] = [0, 0]
    try #require(socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue), 0, &ends) == 0)
    defer { ends.forEach { cs_close($0) } }
    let all = queue.count
    #expect(queue.send(to: ends[0]) == all && queue.isEmpty)
    var place = [UInt8](repeating: 0, count: all)
    var sizes: [Int] = []
    while sizes.reduce(0, +) < all {
      let n = Int(cs_recv(ends[1], &place, all))
      try #require(n > 0)
      sizes.append(n)
    }
    return sizes
  }

  /// A system call takes 64 vectors. A part needs one vector, or two if the queue's own bytes come before it.
  /// Own bytes after the last part need one more. After 62 vectors no further part is added.
  @Test func asManyVectorsAsThereIsRoomFor() throws {
    let message = buffer([UInt8](repeating: 1, count: 2048))
    let head = buffer([UInt8](repeating: 2, count: 9))
    func queue(_ parts: Int, headsFrom first: Int, tail: Bool) -> SendQueue {
      let queue = SendQueue(copies: false)
      for index in 0..<parts {
        if index >= first { #expect(queue.append(head.view)) }
        #expect(queue.append(message, from: 0, count: 2048))
      }
      if tail { #expect(queue.append(head.view)) }
      return queue
    }
    // Parts without own bytes between them.
    #expect(try packets(queue(62, headsFrom: 62, tail: false)) == [62 * 2048])
    #expect(try packets(queue(63, headsFrom: 63, tail: false)) == [62 * 2048, 2048])
    // 62 parts, and own bytes after them.
    #expect(try packets(queue(62, headsFrom: 62, tail: true)) == [62 * 2048 + 9])
    // One part alone and 31 parts with own bytes before them need 63 vectors. The own bytes after them need
    // the 64th.
    #expect(try packets(queue(32, headsFrom: 1, tail: true)) == [2048 + 31 * 2057 + 9])
    // 31 parts with own bytes before them need 62 vectors. All 32 parts would need 65, so the 32nd part is
    // sent by the next system call.
    #expect(try packets(queue(32, headsFrom: 0, tail: true)) == [31 * 2057, 2057 + 9])
  }

  /// The queue holds a message as long as a part of it waits to be sent.
  @Test func holdsWhatWaits() throws {
    let queue = SendQueue(copies: false)
    weak var gone: ByteBuffer?
    do {
      let message = try #require(
        [UInt8](repeating: 1, count: 5000).withUnsafeBytes { ByteBuffer(copying: $0) })
      #expect(queue.append(message, from: 0, count: message.count))
      gone = message
    }
    #expect(gone != nil)
    queue.removeAll()
    #expect(gone == nil && queue.isEmpty)
  }

  /// A lent message (whose memory belongs to the user) is released only when its copied bytes were sent. It
  /// is not released when it is copied, because the copy happens within nghttp2.
  @Test(arguments: [false, true]) func holdsWhatWasLent(copies: Bool) throws {
    var ends: [Int32] = [0, 0]
    try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
    defer { ends.forEach { cs_close($0) } }
    let queue = SendQueue(copies: copies)
    weak var gone: ByteBuffer?
    do {
      let message = try #require(
        [UInt8](repeating: 1, count: 100).withUnsafeBytes { ByteBuffer(copying: $0) })
      #expect(queue.append(message.lend(), from: 0, count: message.count))
      gone = message
    }
    #expect(gone != nil && queue.count == 100)
    #expect(queue.send(to: ends[0]) == 100 && queue.isEmpty && gone == nil)
  }
}
