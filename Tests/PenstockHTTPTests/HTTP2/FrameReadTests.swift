import CPenstockSystem
import Glibc
import PenstockCall
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockHTTP
@testable import PenstockLoop

/// Checks how many bytes a read of many frames puts directly into the message. Another test,
/// Tests/c/test_frames.c, checks that the result is right for any input.
@Suite struct FrameReadTests {
  /// An owner that receives a message into `memory`, and counts the bytes that had to be copied there.
  final class Owner: StreamOwner {
    let memory: UnsafeMutableRawBufferPointer
    var count = 0
    var copied = 0

    init(_ size: Int) { memory = .allocate(byteCount: size, alignment: 16) }
    deinit { memory.deallocate() }

    override func streamOpens(_ stream: TransportStream, _ fields: FieldList) -> Bool {
      fields.add(":method", "POST") && fields.add(":path", "/a.B/C")
    }

    override func streamReceives(head: HeaderBlock, endsStream: Bool) {}
    override func streamReceives(trailers: HeaderBlock) {}
    override func streamChanged(_ stream: TransportStream) {}

    override func streamSpace() -> UnsafeMutableRawBufferPointer? {
      count < memory.count ? UnsafeMutableRawBufferPointer(rebasing: memory[count...]) : nil
    }

    override func streamReceives(_ bytes: ByteView) -> Int {
      guard let start = memory.baseAddress, bytes.count <= memory.count - count else { return 0 }
      if bytes.baseAddress != UnsafeRawPointer(start + count) {
        copied += bytes.count
        memmove(start + count, bytes.baseAddress!, bytes.count)
      }
      count += bytes.count
      return bytes.count
    }
  }

  /// Sends a message in frames of the given lengths, and reads it. Returns the number of bytes that were
  /// copied, and the number of reads. `pause`: the number of frames after which no more are sent until these have been
  /// read.
  func read(_ lengths: [Int], padding: UInt8? = nil, pause: Int? = nil) throws -> (copied: Int, reads: Int) {
    let session = try #require(HTTP2Session.make(TransportLimits()))
    let owner = Owner(lengths.reduce(0, +))
    let stream = HTTP2Stream()
    stream.owner = owner
    stream.endsAfterPieces = true
    func receive(_ bytes: [UInt8]) { bytes.withUnsafeBytes { #expect(session.receive($0)) } }
    _ = session.collect(into: SendQueue(copies: true))
    receive(Frame.settings().encoded + Frame.settingsAck.encoded)
    session.add(stream)
    _ = session.collect(into: SendQueue(copies: true))
    var expected: [UInt8] = []
    var wire = Frame.head(1).encoded
    var pausesAt = 0
    for (i, length) in lengths.enumerated() {
      if i == pause { pausesAt = wire.count }
      let bytes = (0..<length).map { UInt8(truncatingIfNeeded: (expected.count + $0) &* 131 >> 3) }
      expected += bytes
      let padded = padding.map { [$0] + bytes + [UInt8](repeating: 0, count: Int($0)) }
      wire += Frame(type: 0, flags: padding == nil ? 0 : 8, stream: 1, payload: padded ?? bytes).encoded
    }
    var ends: [Int32] = [0, 0]
    try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
    defer { cs_close(ends[1]) }
    let socket = Socket(ends[0])
    var size: Int32 = 4 << 20
    #expect(setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &size, 4) == 0)
    let scratch = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 << 10, alignment: 16)
    defer { scratch.deallocate() }
    let frames = FrameRead(scratch)
    var sent = 0
    var reads = 0
    while owner.count < expected.count {
      if sent == pausesAt, owner.count >= lengths.prefix(pause ?? 0).reduce(0, +) { pausesAt = wire.count }
      let part = wire[sent..<max(sent, pausesAt)].withUnsafeBytes {
        cs_send(ends[1], $0.baseAddress, $0.count)
      }
      if part > 0 { sent += Int(part) }
      reads += 1
      if let room = session.messageSpace(), frames.prepare(room, session, bytes: 256 << 10) {
        guard case .bytes(let n) = frames.receive(from: socket) else { break }
        #expect(frames.deliver(n) { session.receive($0) })
      } else {
        let start = UnsafeMutableRawBufferPointer(rebasing: scratch[..<100])
        guard case .bytes(let n) = socket.receive(into: start) else { break }
        #expect(session.receive(ByteView(rebasing: ByteView(scratch)[..<n])))
      }
    }
    #expect([UInt8](owner.memory[..<owner.count]) == expected)
    return (owner.copied, reads)
  }

  /// Frames of equal length are not copied, except for the part in the first read. A shorter last frame is
  /// not copied either.
  @Test(arguments: [4096, 16384, 20001, 65280]) func regularFramesStayWhereTheyAre(_ length: Int) throws {
    let lengths = [Int](repeating: length, count: 10) + [4097]
    #expect(try read(lengths).copied <= 100)
  }

  /// A frame whose length was guessed wrongly is copied, together with the bytes in the same read. Later
  /// frames are not copied.
  @Test func aShorterFrameIsCopied() throws {
    let lengths = [Int](repeating: 16384, count: 12) + [10_000] + [Int](repeating: 16384, count: 30)
    let (copied, _) = try read(lengths)
    #expect(copied > 10_000 && copied < 100 + 10_000 + 17 * 16384)
  }

  /// A frame that is shorter than the guess is in its place if nothing was read behind it.
  @Test func aShorterFrameWithNothingBehindIsNotCopied() throws {
    let lengths = [Int](repeating: 16384, count: 8) + [10_000] + [Int](repeating: 16384, count: 4)
    #expect(try read(lengths, pause: 9).copied <= 200)
  }

  @Test func paddedFramesAreCopied() throws {
    let lengths = [Int](repeating: 16384, count: 4)
    #expect(try read(lengths, padding: 7).copied == 4 * 16384)
  }

  /// The number of frames in one read grows with each right guess.
  @Test func readsManyFramesAtOnce() throws {
    #expect(try read([Int](repeating: 16384, count: 40)).reads < 12)
  }
}
