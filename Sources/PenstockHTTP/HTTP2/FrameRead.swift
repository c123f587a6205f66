import CPenstockSystem
import PenstockWire
import PenstockLoop

/// A read that puts the parts of a large message's frames into three places. The content of the frames goes
/// into the message, the frame headers go into memory of their own, and the bytes after the message go into
/// `scratch`.
///
/// ```
/// message:  [rest of this frame]        [next frame]        [next frame]
/// headers:                      [header]            [header]
/// scratch:                                                              [later bytes]
/// ```
///
/// The length of the next frames is a guess: most peers divide a message into frames of equal length.
/// `deliver` checks each header before it uses the bytes after the header. If a header differs from the
/// guess, those bytes are in the wrong place. They are then copied, and handled like any other bytes.
///
/// Each function handles many KiB at once, so the code is compiled for size.
final class FrameRead {
  private let scratch: UnsafeMutableRawBufferPointer
  private let vectors: UnsafeMutablePointer<iovec>
  private var filled = 0
  /// The indices in `vectors` for the frames that are expected after the present one. Each such frame has two
  /// vectors: one for its header and one for its content.
  private var ahead = 0..<0
  private var stream: Int32 = 0
  /// The number of bytes that the vectors can receive.
  private(set) var capacity = 0
  /// `size`: the length of the last frames' content in bytes. `most`: the number of frames that a read
  /// expects. It is 1 after a wrong guess, and doubles after each read with a right guess.
  private var size = 0
  private var most = 1

  private static let headerSize = 9
  private static let mostFrames = 16
  /// The last bytes of the scratch hold the vectors and, after them, the frame headers. This is the number of
  /// these bytes.
  private static let asideSize = 1024
  /// The number of bytes that are read after the end of a large message. It is small, because these bytes
  /// have to be copied.
  private static let shortTail = 4096

  init(_ scratch: UnsafeMutableRawBufferPointer) {
    self.scratch = scratch
    let aside = scratch.baseAddress! + (scratch.count - FrameRead.asideSize)
    vectors = aside.assumingMemoryBound(to: iovec.self)
  }

  /// Prepares a read of about `bytes` bytes of the rest of a message. False: the read would put no bytes
  /// directly into the message.
  func prepare(_ message: UnsafeMutableRawBufferPointer, _ session: HTTP2Session, bytes: Int) -> Bool {
    let left = session.tracker.dataLeft
    let rest = min(left, message.count)
    var behind = message.count - rest
    let size = max(session.tracker.dataLength, size)
    var count = 0
    if left == rest {
      // The last frame may be shorter than `size`.
      let frames = (behind + size - HTTP2Session.leastSpace) / size
      count = min(frames, most, max(1, bytes / size), FrameRead.mostFrames)
    }
    if count == 0 && rest < HTTP2Session.leastSpace { return false }
    self.size = size
    stream = session.tracker.stream
    filled = 0
    capacity = 0
    var space = message.baseAddress!
    if rest > 0 { add(space, rest) }
    space += rest
    ahead = filled..<(filled + 2 * count)
    var header = UnsafeMutableRawPointer(vectors + (2 * FrameRead.mostFrames + 2))
    for _ in 0..<count {
      let part = min(size, behind)
      add(header, FrameRead.headerSize)
      add(space, part)
      header += FrameRead.headerSize
      space += part
      behind -= part
    }
    if count == 0 && rest < scratch.count / 2 {
      add(scratch.baseAddress!, scratch.count - FrameRead.asideSize)
    } else if behind < HTTP2Session.leastSpace || count == 0 {
      add(scratch.baseAddress!, FrameRead.shortTail + (count == 0 ? 0 : behind))
    }
    return true
  }

  private func add(_ space: UnsafeMutableRawPointer, _ count: Int) {
    vectors[filled] = iovec(iov_base: space, iov_len: count)
    filled += 1
    capacity += count
  }

  func receive(from socket: Socket) -> Socket.Moved { socket.receive(vectors, filled) }

  /// Passes the `n` bytes of the read to `receive`, in the order of the stream, until `receive` returns
  /// false. Returns false if there is no memory.
  func deliver(_ n: Int, _ receive: (ByteView) -> Bool) -> Bool {
    var left = n
    var index = 0
    while left > 0 {
      let vector = vectors[index]
      let part = min(left, vector.iov_len)
      left -= part
      let isRight = left == 0 || !isHeader(index) || stands(behind: index, left)
      if !receive(ByteView(start: vector.iov_base, count: part)) { return true }
      index += 1
      if !isRight {
        size = 0
        most = 1
        guard let copied = copy(from: index, left) else { return false }
        _ = receive(copied.view)
        return true
      }
    }
    if !ahead.isEmpty, index >= ahead.upperBound { most = max(most, ahead.count) }
    return true
  }

  private func isHeader(_ index: Int) -> Bool {
    ahead.contains(index) && (index - ahead.lowerBound) & 1 == 0
  }

  /// Whether the received frame header at `index` agrees with the guess, so that the bytes after it are in
  /// the right place. `left`: the number of bytes that were read after the header.
  private func stands(behind index: Int, _ left: Int) -> Bool {
    guard let header = vectors[index].iov_base else { return false }
    let start = UInt64(bigEndian: header.loadUnaligned(as: UInt64.self))
    let id = UInt32(bigEndian: header.loadUnaligned(fromByteOffset: 5, as: UInt32.self)) & 0x7FFF_FFFF
    // The guess is right only for a DATA frame without padding on the expected stream.
    guard (start >> 32) & 0xFF == 0, (start >> 24) & 0x8 == 0, id == UInt32(bitPattern: stream) else {
      return false
    }
    let length = Int(start >> 40)
    let room = vectors[index + 1].iov_len
    // If the frame is longer than its vector, its other bytes must be in the next vector, which is the
    // scratch.
    return length == room || length >= min(left, room) && (left <= room || index + 2 == ahead.upperBound)
  }

  private func copy(from first: Int, _ n: Int) -> ByteBuffer? {
    let copied = ByteBuffer()
    var left = n
    var index = first
    while left > 0 {
      let part = min(left, vectors[index].iov_len)
      guard copied.append(ByteView(start: vectors[index].iov_base, count: part)) else { return nil }
      left -= part
      index += 1
    }
    return copied
  }
}

// MARK: Space

extension HTTP2Session {
  /// The space within a message into which the next bytes should be received, before `receive` gets them.
  /// nil: the bytes belong to no message with such space, and may be received anywhere.
  public func space() -> UnsafeMutableRawBufferPointer? {
    let left = tracker.dataLeft
    guard left >= HTTP2Session.leastSpace, let all = messageSpace() else { return nil }
    return UnsafeMutableRawBufferPointer(rebasing: all.prefix(left))
  }

  /// The space for the missing rest of the message to which the present DATA frame belongs; between two
  /// frames, the last DATA frame. nil: there is no such space, or it has fewer than `leastSpace` bytes.
  func messageSpace() -> UnsafeMutableRawBufferPointer? {
    guard tracker.dataLength >= HTTP2Session.leastSpace,
      let stream = find(tracker.stream)?.takeUnretainedValue(),
      stream.bodyIsEmpty, stream.end == nil, let space = stream.owner?.streamSpace(),
      space.count >= HTTP2Session.leastSpace
    else { return nil }
    if !window.isWide { widenWindow() }
    return space
  }

  /// Whether the stream of the last frame has received bytes that its owner has not taken yet.
  var isBehind: Bool {
    phase != .abandoned && (find(tracker.stream).map { !$0.takeUnretainedValue().bodyIsEmpty } ?? false)
  }

  /// The smallest space within a message into which bytes are received directly. If there is less space, the bytes are
  /// copied into the message.
  static let leastSpace = 4096
}
