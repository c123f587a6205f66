import CPenstockMemory
import PenstockWire
import PenstockLoop

/// Keeps header blocks that nghttp2 has encoded, for later requests that differ only in their inserted fields
/// (`InsertedField`): the timeout, and the length of the body.
///
/// From the second such request on, all fields except the path are in HPACK's table, and nghttp2 never puts
/// the path there. So the block only refers to the table and does not change it. As long as no field is added
/// to the table, nghttp2 would encode equal bytes again. Instead, the session gives nghttp2 the request
/// without fields, and appends the kept block to the empty HEADERS frame that nghttp2 makes. This saves 2,700
/// instructions per call. The request's inserted fields are put into the block.
///
/// Requests are sent in the order in which nghttp2 got them. A request that nghttp2 got without fields is
/// sent before any further byte is received, because SETTINGS of the peer may change the table.
final class KnownBlocks {
  private final class Known {
    let owner: AnyObject
    let path: ByteBuffer
    let block: ByteBuffer
    /// The offset in `block` at which the inserted fields are put.
    let split: Int
    let size: Int

    init(_ owner: AnyObject, _ path: ByteBuffer, _ block: ByteBuffer, split: Int, size: Int) {
      self.owner = owner
      self.path = path
      self.block = block
      self.split = split
      self.size = size
      confine(self)
    }
  }

  /// The kept blocks. The slot of a block follows from its path. Each entry is a counted reference.
  private let slots = UnsafeMutablePointer<Unmanaged<Known>?>.allocate(capacity: KnownBlocks.most)
  private static let most = 8
  private var isEmpty = true
  /// Whether a request that is opened now is sent before any further byte is received.
  var isUsable = false
  /// The last request that nghttp2 got with its fields: its stream id, its owner, its path (nil: the block
  /// must not be kept), the size of its header list, and whether it has a timeout.
  private var lastSpelled: Int32 = 0
  private var spelledOwner: AnyObject?
  private var spelledPath: ByteBuffer?
  private var spelledSize = 0
  private var spelledInserts = 0
  /// `lastRepeated`: the stream id of the last request that nghttp2 got without fields. `lastMade`: the
  /// stream id of the last request for which nghttp2 has made a HEADERS frame.
  private var lastRepeated: Int32 = 0
  private var lastMade: Int32 = 0
  /// The inserted fields of requests that nghttp2 got without fields, oldest request first. Each entry has
  /// the stream id, the number of bytes of the fields, and these bytes.
  private let inserts = ByteBuffer()
  private static let insertHead = 5

  static let frameHead = 9
  private static let endHeaders: UInt8 = 4
  private static let endStream: UInt8 = 1
  /// The index of the header field before which the inserted fields are put.
  static let insertIndex = 4

  init() {
    slots.initialize(repeating: nil, count: KnownBlocks.most)
    confine(self)
  }

  deinit {
    removeAll()
    slots.deallocate()
  }

  /// Whether nghttp2 has a request without fields whose frame it has not made yet.
  var isWaiting: Bool { lastRepeated > lastMade }

  private static func slot(of path: ByteBuffer) -> Int {
    // The last byte of a path is a NUL, so the byte before it is used.
    let view = path.view
    return view.count < 2 ? 0 : (view.count &* 5 &+ Int(view[view.count &- 2])) & (most &- 1)
  }

  /// Finds the kept block for a request of `owner` with `path`. Returns the block's number, counted from 1,
  /// and the size of its header list. nil: there is no such block, or it can't be used now.
  func find(_ owner: AnyObject, _ path: ByteBuffer) -> (number: UInt8, size: Int)? {
    // nghttp2 has not made the frame of an earlier request with fields. That frame may add fields to HPACK's
    // table.
    guard isUsable, lastSpelled <= lastMade else { return nil }
    let slot = KnownBlocks.slot(of: path)
    return slots[slot]?._withUnsafeGuaranteedRef { known in
      known.owner === owner && (known.path === path || bytesEqual(known.path.view, path.view))
        ? (number: UInt8(slot + 1), size: known.size) : nil
    }
  }

  /// Makes room for the inserted fields of one more request. False: no memory.
  func reserveInserts() -> Bool {
    inserts.spare(atLeast: KnownBlocks.insertHead + InsertedField.mostEncoded) != nil
  }

  /// Called after request `id` was submitted to nghttp2 with an empty header list. `append` adds the kept
  /// block to its frame later.
  func repeated(_ id: Int32) { lastRepeated = id }

  /// Called after request `id` was submitted to nghttp2 with an empty header list. Its block is a known one with
  /// `fields`, encoded fields of its own, for which `reserveInserts` has made room.
  func repeated(_ id: Int32, inserting fields: ByteView) {
    lastRepeated = id
    let size = KnownBlocks.insertHead + fields.count
    guard let to = inserts.spare(atLeast: size)?.baseAddress, let start = fields.baseAddress else { return }
    to.storeBytes(of: id, as: Int32.self)
    to.storeBytes(of: UInt8(fields.count), toByteOffset: 4, as: UInt8.self)
    memcpy(to + KnownBlocks.insertHead, start, fields.count)
    inserts.commit(size)
  }

  /// Called after request `id` was submitted to nghttp2 with all its fields. `path`: nil if the block must
  /// not be kept, because requests with this path may differ in other fields than the inserted ones. `size`:
  /// the size of the header list without the inserted fields.
  func spelled(_ id: Int32, _ owner: AnyObject?, _ path: ByteBuffer?, inserted: Int, size: Int) {
    lastSpelled = id
    spelledOwner = owner
    spelledPath = path
    spelledInserts = inserted
    spelledSize = size
  }

  /// Appends the HEADERS frame that nghttp2 has made for request `id` to `out`. `number`: the kept block
  /// (`find`) to append after a frame without fields; 0: the frame has its fields. False: no memory.
  func append(_ frame: ByteView, of id: Int32, at number: UInt8, to out: SendQueue) -> Bool {
    lastMade = id
    guard number > 0 else {
      learn(frame, of: id)
      return out.append(frame)
    }
    // A frame without fields must not be sent without its block.
    guard frame.count == KnownBlocks.frameHead, let known = slots[Int(number) - 1] else { return false }
    return known._withUnsafeGuaranteedRef { known in
      let block = known.block.view
      guard let head = frame.baseAddress, let start = block.baseAddress,
        var to = out.bytes.spare(atLeast: KnownBlocks.frameHead + block.count + InsertedField.mostEncoded)?
          .baseAddress
      else { return false }
      memcpy(to, head, KnownBlocks.frameHead)
      let lengthAt = to + 1
      to += KnownBlocks.frameHead
      let more = inserts.isEmpty ? 0 : putInserts(of: id, into: to + known.split)
      let before = more > 0 ? known.split : 0
      if more > 0 { memcpy(to, start, before) }
      memcpy(to + before + more, start + before, block.count - before)
      let length = block.count &+ more
      lengthAt.storeBytes(of: UInt16(truncatingIfNeeded: length).bigEndian, as: UInt16.self)
      out.bytes.commit(KnownBlocks.frameHead + length)
      return true
    }
  }

  /// Writes the inserted fields of request `id` to `space`. Returns their length; 0: the request has none.
  private func putInserts(of id: Int32, into space: UnsafeMutableRawPointer) -> Int {
    while let next = inserts.view.baseAddress {
      let nextID = next.loadUnaligned(as: Int32.self)
      if nextID > id { break }
      let count = Int(next.load(fromByteOffset: 4, as: UInt8.self))
      if nextID == id { memcpy(space, next + KnownBlocks.insertHead, count) }
      // The entry is for this request, or for an earlier request that was dropped before it was sent. So it
      // is not needed any more.
      inserts.consume(KnownBlocks.insertHead + count)
      if nextID == id { return count }
    }
    return 0
  }

  /// Removes all blocks, because HPACK's table may have changed, and nghttp2 would encode later blocks
  /// differently.
  func removeAll() {
    if isEmpty { return }
    for slot in 0..<KnownBlocks.most {
      slots[slot]?.release()
      slots[slot] = nil
    }
    isEmpty = true
  }

  private func learn(_ frame: ByteView, of id: Int32) {
    let path = id == lastSpelled ? spelledPath : nil
    if path == nil && isEmpty { return }
    let block = ByteView(rebasing: frame[KnownBlocks.frameHead...])
    let index = KnownBlocks.insertIndex
    guard frame[4] & ~KnownBlocks.endStream == KnownBlocks.endHeaders,
      let split = KnownBlocks.offset(in: block, of: index),
      KnownBlocks.offset(in: block, of: .max) != nil
    else { return removeAll() }
    guard let owner = spelledOwner, let path,
      let copy = ByteBuffer(copying: ByteView(rebasing: block[..<split])),
      let rest = KnownBlocks.offset(in: block, of: index + spelledInserts),
      copy.append(ByteView(rebasing: block[rest...]))
    else { return }
    let slot = KnownBlocks.slot(of: path)
    slots[slot]?.release()
    slots[slot] = .passRetained(Known(owner, path, copy, split: split, size: spelledSize))
    isEmpty = false
    spelledPath = nil
  }

  /// The offset at which field `index` of `block` begins, or the end of the block if it has fewer fields.
  /// nil: a field before that offset changes HPACK's table (RFC 7541 section 6), or contains a number that
  /// takes too many bytes.
  static func offset(in block: ByteView, of index: Int) -> Int? {
    var at = 0
    var left = index
    func skipString() {
      // A length that is too large moves `at` beyond the end, so the function returns nil.
      let length = at < block.count ? Int(block[at] & 0x7f) : 0x7f
      at = length < 0x7f ? at + 1 + length : .max / 2
    }
    while at < block.count, left > 0 {
      let byte = block[at]
      at += 1
      left -= 1
      if byte & 0x80 != 0 {
        if byte == 0xff { return nil }
      } else {
        if byte & 0x60 != 0 { return nil }
        if byte & 0xf == 0 { skipString() }
        if byte & 0xf == 0xf {
          // The number of the field name in HPACK's table takes one more byte.
          guard at < block.count, block[at] < 0x80 else { return nil }
          at += 1
        }
        skipString()
      }
    }
    return at <= block.count ? at : nil
  }
}
