import CMemory
import PenstockWire

/// The header blocks of requests that differ in nothing from one before, kept as nghttp2 has made them.
///
/// By the second time all fields of such a request stand in HPACK's table, but for the path, which nghttp2 does not put
/// there: its block refers to the table and changes nothing in it. So nghttp2 would make the same bytes again for as long
/// as nothing comes into the table. It gets such a request without fields, and the block goes into the empty HEADERS
/// frame that comes of it: that saves 2,700 instructions of a call.
///
/// Requests leave in the order in which nghttp2 got them. What is given without fields leaves before anything else is
/// received: the peer's SETTINGS may change the table.
final class KnownBlocks {
  private final class Known {
    let owner: AnyObject
    let path: ByteBuffer
    let block: ByteBuffer
    let size: Int

    init(_ owner: AnyObject, _ path: ByteBuffer, _ block: ByteBuffer, size: Int) {
      self.owner = owner
      self.path = path
      self.block = block
      self.size = size
      confine(self)
    }
  }

  /// By path; each a reference.
  private let places = UnsafeMutablePointer<Unmanaged<Known>?>.allocate(capacity: KnownBlocks.most)
  private static let most = 8
  private var isEmpty = true
  /// What is asked for now leaves before anything is received.
  var isUsable = false
  /// The last request that nghttp2 got with its fields, whose it is, its path if it is of those that may be kept, and how
  /// large its list is.
  private var lastSpelled: Int32 = 0
  private var spelledOwner: AnyObject?
  private var spelledPath: ByteBuffer?
  private var spelledSize = 0
  /// The last that it got without, and the last that it has made a frame of.
  private var lastRepeated: Int32 = 0
  private var lastMade: Int32 = 0

  static let frameHead = 9
  private static let endHeaders: UInt8 = 4

  init() {
    places.initialize(repeating: nil, count: KnownBlocks.most)
    confine(self)
  }

  deinit {
    removeAll()
    places.deallocate()
  }

  /// Frames without their blocks are still to come.
  var isWaiting: Bool { lastRepeated > lastMade }

  private static func place(of path: ByteBuffer) -> Int {
    // The last is a NUL.
    let view = path.view
    return view.count < 2 ? 0 : (view.count &* 5 &+ Int(view[view.count &- 2])) & (most &- 1)
  }

  /// Where the block of a request of `owner`'s for `path` stands, counted from 1, and how large its list is.
  func find(_ owner: AnyObject, _ path: ByteBuffer) -> (place: UInt8, size: Int)? {
    // One that is still to be made may put something into the table.
    guard isUsable, lastSpelled <= lastMade else { return nil }
    let place = KnownBlocks.place(of: path)
    return places[place]?._withUnsafeGuaranteedRef { known in
      known.owner === owner && (known.path === path || bytesEqual(known.path.view, path.view))
        ? (place: UInt8(place + 1), size: known.size) : nil
    }
  }

  /// nghttp2 has got request `id` without fields.
  func repeated(_ id: Int32) { lastRepeated = id }

  /// It has got request `id` with its fields. `path`: it has nothing that others of that path do not have.
  func spelled(_ id: Int32, _ owner: AnyObject?, _ path: ByteBuffer?, size: Int) {
    lastSpelled = id
    spelledOwner = owner
    spelledPath = path
    spelledSize = size
  }

  /// Adds the frame that nghttp2 has made of request `id`, with what stands at `place`. False: no memory.
  func append(_ frame: ByteView, of id: Int32, place: UInt8, to out: SendQueue) -> Bool {
    lastMade = id
    guard place > 0 else {
      learn(frame, of: id)
      return out.append(frame)
    }
    // Without the block the frame is not to leave at all.
    guard frame.count == KnownBlocks.frameHead, let known = places[Int(place) - 1] else { return false }
    return known._withUnsafeGuaranteedRef { known in
      let block = known.block.view
      guard let head = frame.baseAddress, let start = block.baseAddress,
        let room = out.bytes.spare(atLeast: KnownBlocks.frameHead + block.count), let to = room.baseAddress
      else { return false }
      memcpy(to, head, KnownBlocks.frameHead)
      to.storeBytes(of: UInt8(truncatingIfNeeded: block.count >> 8), toByteOffset: 1, as: UInt8.self)
      to.storeBytes(of: UInt8(truncatingIfNeeded: block.count), toByteOffset: 2, as: UInt8.self)
      memcpy(to + KnownBlocks.frameHead, start, block.count)
      out.bytes.commit(KnownBlocks.frameHead + block.count)
      return true
    }
  }

  /// Whatever nghttp2 makes next may be other bytes.
  @inline(never) @_optimize(size)
  func removeAll() {
    if isEmpty { return }
    for place in 0..<KnownBlocks.most {
      places[place]?.release()
      places[place] = nil
    }
    isEmpty = true
  }

  @inline(never) @_optimize(size)
  private func learn(_ frame: ByteView, of id: Int32) {
    let path = id == lastSpelled ? spelledPath : nil
    if path == nil && isEmpty { return }
    let block = ByteView(rebasing: frame[KnownBlocks.frameHead...])
    guard frame[4] == KnownBlocks.endHeaders, KnownBlocks.changesNothing(block) else { return removeAll() }
    guard let owner = spelledOwner, let path, let copy = ByteBuffer(copying: block) else { return }
    let place = KnownBlocks.place(of: path)
    places[place]?.release()
    places[place] = .passRetained(Known(owner, path, copy, size: spelledSize))
    isEmpty = false
    spelledPath = nil
  }

  /// `block` has nothing but what stands in the table, and literals that are not to come into it (RFC 7541 section 6),
  /// none with a number that takes more than a byte.
  @inline(never) @_optimize(size)
  static func changesNothing(_ block: ByteView) -> Bool {
    var at = 0
    func skipString() {
      // One that is too long ends up behind the end.
      let length = at < block.count ? Int(block[at] & 0x7f) : 0x7f
      at = length < 0x7f ? at + 1 + length : .max / 2
    }
    while at < block.count {
      let byte = block[at]
      at += 1
      if byte & 0x80 != 0 {
        if byte == 0xff { return false }
      } else {
        if byte & 0x60 != 0 || byte & 0xf == 0xf { return false }
        if byte & 0xf == 0 { skipString() }
        skipString()
      }
    }
    return at == block.count
  }
}
