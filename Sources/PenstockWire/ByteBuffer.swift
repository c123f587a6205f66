internal import CMemory
import Synchronization

/// Growable bytes in `malloc` storage. The consumed prefix is an offset: it is compacted only when room is
/// needed.
///
/// A failed Swift allocation traps, so bytes whose number a peer or a caller chooses are kept in a ByteBuffer: here a
/// failed allocation is a `false` or a `nil`, and leaves the contents as they were.
public final class ByteBuffer {
  private var storage: UnsafeMutableRawPointer?
  /// The size of the storage; negative: the bytes are lent, and another object owns the storage.
  private var capacity = 0
  private var start = 0
  private var end = 0
  /// An object that the owner of the buffer has attached to the bytes; for lent bytes, the object that keeps them.
  public var attachment: AnyObject?
  /// Whether this is a message that is sent uncompressed, whatever compression its call has. The flag stays when the
  /// contents are exchanged, and a buffer that is lent the bytes gets it too.
  public var staysPlain: Bool {
    get { plain.load(ordering: .relaxed) }
    set { plain.store(newValue, ordering: .relaxed) }
  }
  private let plain = Atomic<Bool>(false)

  /// An empty buffer without storage.
  public init() {}

  /// An empty buffer with room for `capacity` bytes; nil when there is no memory for it.
  public convenience init?(capacity: Int) {
    self.init()
    guard capacity >= 0, resize(to: capacity) else { return nil }
  }

  /// A copy of `bytes`; nil when there is no memory for it.
  public convenience init?(copying bytes: ByteView) {
    self.init()
    guard let base = bytes.baseAddress, !bytes.isEmpty else { return }
    guard let memory = cm_alloc(bytes.count) else { return nil }
    memcpy(memory, base, bytes.count)
    storage = memory
    capacity = bytes.count
    end = bytes.count
  }

  /// A buffer of lent bytes: `keeper` keeps them unchanged and at their address. They are never written, and a change
  /// of the buffer begins with a copy.
  public convenience init(lent bytes: ByteView, by keeper: AnyObject?) {
    self.init()
    storage = UnsafeMutableRawPointer(mutating: bytes.baseAddress)
    capacity = -4
    end = bytes.count
    attachment = keeper
  }

  deinit {
    if !isLent, let storage { cm_free(storage) }
  }

  /// Whether the bytes are lent: another object owns them.
  public var isLent: Bool { capacity < 0 }

  /// How many bytes can be read.
  public var count: Int { end &- start }

  public var isEmpty: Bool { start == end }

  /// The readable bytes, until the next mutation.
  public var view: ByteView {
    guard let storage, end > start else { return ByteView(start: nil, count: 0) }
    return ByteView(start: storage + start, count: end &- start)
  }

  /// Makes room for `additional` more bytes, growing geometrically. False: no memory (or the number is negative or far
  /// too large); the contents are unchanged.
  public func reserve(_ additional: Int) -> Bool {
    if additional <= capacity &- end { return additional >= 0 }
    let (needed, overflow) = count.addingReportingOverflow(additional)
    if overflow { return false }
    // Moving is better than growing as long as it frees a quarter: then each byte is moved three times at most, and
    // the storage is never more than twice its largest content.
    if needed <= capacity / 4 * 3 {
      compact()
      return true
    }
    return resize(to: grown(to: needed)) || resize(to: needed)
  }

  /// A buffer that only grows has sizes that are powers of two. So if its contents are bounded by a power of two, the
  /// storage never exceeds that bound, whatever is appended.
  private func grown(to needed: Int) -> Int {
    if capacity <= 0 || needed > 1 << 60 { return max(needed, 64) }
    if start > 0 { return max(needed, min(capacity, needed) * 2, 64) }
    return max(1 << (Int.bitWidth - (needed - 1).leadingZeroBitCount), 64)
  }

  /// Makes room for exactly `total` readable bytes if there is less, without the extra room of `reserve`.
  public func reserveExactly(total: Int) -> Bool {
    total <= capacity &- start || resize(to: total)
  }

  /// How many readable bytes fit into the storage before it has to grow or move its contents.
  var reach: Int { capacity &- start }

  /// Adds a copy of `bytes`, which may be a part of this buffer. False: no memory, unchanged.
  public func append(_ bytes: ByteView) -> Bool {
    guard let base = bytes.baseAddress, !bytes.isEmpty else { return true }
    var source = base
    if bytes.count > capacity &- end {
      // The source may be in this buffer's own storage, which is about to move.
      let own = ownOffset(of: base)
      guard reserve(bytes.count), let storage else { return false }
      if let own { source = UnsafeRawPointer(storage + start + own) }
    }
    guard let storage else { return false }
    memmove(storage + end, source, bytes.count)
    end &+= bytes.count
    return true
  }

  /// Like `append`, but bytes that are already in the writable tail are not copied.
  func accept(_ bytes: ByteView) -> Bool {
    guard let storage, let base = bytes.baseAddress, base == UnsafeRawPointer(storage + end),
      bytes.count <= capacity &- end
    else { return append(bytes) }
    end &+= bytes.count
    return true
  }

  public func append(byte: UInt8) -> Bool {
    if end >= capacity && !reserve(1) { return false }
    guard let storage else { return false }
    storage.storeBytes(of: byte, toByteOffset: end, as: UInt8.self)
    end &+= 1
    return true
  }

  public func append(_ text: StaticString) -> Bool { append(text.bytes) }

  /// Drops `n` bytes from the front; all bytes, if there are fewer than `n`.
  public func consume(_ n: Int) {
    guard n > 0 else { return }
    if n >= count {
      start = 0
      end = 0
    } else {
      start &+= n
    }
  }

  /// Drops the readable bytes after the first `n`.
  public func truncate(to n: Int) {
    guard n < count else { return }
    end = start &+ max(n, 0)
  }

  public func removeAll(keepingCapacity: Bool) {
    start = 0
    end = 0
    if !keepingCapacity {
      dropStorage()
      storage = nil
      capacity = 0
    }
  }

  /// The writable tail, at least `n` bytes long; nil: no memory. Bytes written there count after `commit`.
  public func spare(atLeast n: Int) -> UnsafeMutableRawBufferPointer? {
    guard reserve(max(n, 0)) else { return nil }
    guard let storage else { return UnsafeMutableRawBufferPointer(start: nil, count: 0) }
    return UnsafeMutableRawBufferPointer(start: storage + end, count: capacity &- end)
  }

  /// Makes the first `n` bytes of the writable tail readable.
  public func commit(_ n: Int) {
    end &+= min(max(n, 0), capacity &- end)
  }

  /// Hands over the storage, which must not be lent, with the readable bytes at its front. The caller frees it, and
  /// the buffer is empty afterwards. An empty buffer gives nil and 0.
  public func take() -> (UnsafeMutableRawPointer?, Int) {
    precondition(!isLent)
    guard count > 0 else {
      removeAll(keepingCapacity: false)
      return (nil, 0)
    }
    compact()
    let taken = (storage, end)
    storage = nil
    capacity = 0
    end = 0
    return taken
  }

  /// Another buffer with the same bytes, which are lent to it. If this buffer's bytes are lent themselves, the original
  /// keeper keeps them and this buffer may be changed; otherwise the other buffer keeps this one, which must stay
  /// unchanged as long as the other is used. Nothing is kept if this buffer is empty.
  @inline(never) @_optimize(size)
  public func lend() -> ByteBuffer {
    let other = ByteBuffer(lent: view, by: isEmpty ? nil : isLent ? attachment : self)
    other.staysPlain = staysPlain
    return other
  }

  /// Exchanges contents, storage and attachment with `other`. If one of the two has `staysPlain`, this buffer has it
  /// afterwards. This cannot fail.
  public func exchange(with other: ByteBuffer) {
    if other.staysPlain { staysPlain = true }
    swap(&storage, &other.storage)
    swap(&capacity, &other.capacity)
    swap(&start, &other.start)
    swap(&end, &other.end)
    swap(&attachment, &other.attachment)
  }

  private func compact() {
    guard start > 0, let storage else { return }
    let n = count
    memmove(storage, storage + start, n)
    start = 0
    end = n
  }

  /// Makes the storage at least `size` bytes large, with the readable bytes at its front.
  private func resize(to size: Int) -> Bool {
    if size <= capacity && start == 0 { return true }
    guard size >= count else { return false }
    if start == 0 && !isLent {
      // `realloc` moves pages instead of copying bytes when the block is large.
      guard let grown = cm_realloc(storage, max(size, 1)) else { return false }
      storage = grown
    } else {
      guard let grown = cm_alloc(max(size, 1)) else { return false }
      let n = count
      if let storage, n > 0 { memcpy(grown, storage + start, n) }
      dropStorage()
      storage = grown
      start = 0
      end = n
    }
    capacity = size
    return true
  }

  private func dropStorage() {
    if isLent { attachment = nil } else { cm_free(storage) }
  }

  private func ownOffset(of pointer: UnsafeRawPointer) -> Int? {
    guard let storage else { return nil }
    let base = UnsafeRawPointer(storage)
    guard pointer >= base + start, pointer < base + end else { return nil }
    return pointer - (base + start)
  }
}
