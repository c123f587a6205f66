import CSystem
import PenstockWire

/// A read that puts the frames of a large message where they belong: their content into the message, the frame
/// headers aside, and the bytes behind the message into `scratch`.
///
/// ```
/// message:  [rest of this frame]        [next frame]        [next frame]
/// aside:                        [header]            [header]
/// scratch:                                                              [later bytes]
/// ```
/// The length of the frames to come is a guess: most peers cut a message into frames of one length. `deliver`
/// checks each header before it uses the bytes behind it. If a header is not as guessed, those bytes are in
/// the wrong place: they are copied away, and handled like any other bytes.
///
/// Each function handles many KiB at once, so the code is compiled for size.
final class FrameRead {
  private let scratch: UnsafeMutableRawBufferPointer
  private let vectors: UnsafeMutablePointer<iovec>
  private var filled = 0
  /// The range of vectors for whole frames: each frame has one vector for its header and one for its content.
  private var ahead = 0..<0
  private var stream: Int32 = 0
  /// How many bytes the vectors have room for.
  private(set) var capacity = 0
  /// `size`: the size of the last frames' content. `most`: how many frames are read ahead; 1 after a wrong
  /// guess, and twice as many after each read that was guessed right.
  private var size = 0
  private var most = 1

  private static let headerSize = 9
  private static let mostFrames = 16
  /// The size of the part at the end of the scratch that holds the vectors and, behind them, the frame headers.
  private static let asideSize = 1024
  /// How many bytes are read behind a large message: few, because they have to be copied.
  private static let shortTail = 4096

  init(_ scratch: UnsafeMutableRawBufferPointer) {
    self.scratch = scratch
    let aside = scratch.baseAddress! + (scratch.count - FrameRead.asideSize)
    vectors = aside.assumingMemoryBound(to: iovec.self)
  }

  /// Prepares a read of the rest of a message, about `bytes` of it. False: the read would put nothing straight into
  /// the message.
  @inline(never) @_optimize(size)
  func prepare(_ message: UnsafeMutableRawBufferPointer, _ session: HTTP2Session, bytes: Int) -> Bool {
    let left = session.tracker.dataLeft
    let rest = min(left, message.count)
    var behind = message.count - rest
    let size = max(session.tracker.dataLength, size)
    var count = 0
    if left == rest {
      // The last frame may be shorter.
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

  /// Passes the `n` bytes that have come to `receive`, in order, until `receive` returns false. The result is
  /// false if there is no memory.
  @inline(never) @_optimize(size)
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

  /// Whether the frame header at `index` is as guessed, so that the bytes behind it are in the right place.
  /// `left`: how many bytes were read behind the header.
  private func stands(behind index: Int, _ left: Int) -> Bool {
    guard let header = vectors[index].iov_base else { return false }
    let start = UInt64(bigEndian: header.loadUnaligned(as: UInt64.self))
    let id = UInt32(bigEndian: header.loadUnaligned(fromByteOffset: 5, as: UInt32.self)) & 0x7FFF_FFFF
    // The frame has to be DATA, without padding.
    guard (start >> 32) & 0xFF == 0, (start >> 24) & 0x8 == 0, id == UInt32(bitPattern: stream) else {
      return false
    }
    let length = Int(start >> 40)
    let room = vectors[index + 1].iov_len
    // A longer frame continues in the scratch if that is the next vector.
    return length == room || length >= min(left, room) && (left <= room || index + 2 == ahead.upperBound)
  }

  @inline(never) @_optimize(size)
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
  /// The space for the next bytes before `receive` gets them: within the message that they belong to. nil: they may
  /// be put anywhere.
  func space() -> UnsafeMutableRawBufferPointer? {
    let left = tracker.dataLeft
    guard left >= HTTP2Session.leastSpace, let all = messageSpace() else { return nil }
    return UnsafeMutableRawBufferPointer(rebasing: all.prefix(left))
  }

  /// The space for the missing rest of a message: the one to which the present DATA frame, or else the last
  /// one, belongs. nil: there is no such space, or less than `leastSpace`.
  func messageSpace() -> UnsafeMutableRawBufferPointer? {
    guard tracker.dataLength >= HTTP2Session.leastSpace,
      let stream = find(tracker.stream)?.takeUnretainedValue(),
      stream.bodyIsEmpty, stream.end == nil, let space = stream.owner?.streamSpace(),
      space.count >= HTTP2Session.leastSpace
    else { return nil }
    if !window.isWide { widenWindow() }
    return space
  }

  /// Whether the stream whose frame came last has bytes that its owner has not taken yet.
  @inline(never) @_optimize(size)
  var isBehind: Bool {
    phase != .abandoned && (find(tracker.stream).map { !$0.takeUnretainedValue().bodyIsEmpty } ?? false)
  }

  /// The smallest space within a message into which bytes are received directly. If there is less space, the bytes are
  /// copied into the message.
  static let leastSpace = 4096
}
