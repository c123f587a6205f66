internal import CPenstockMemory
import Synchronization

/// A growable buffer of bytes, in storage from `malloc`. Consumed bytes at the front stay until their room is
/// needed.
///
/// In Swift a failed allocation traps. So bytes whose number a peer or a caller chooses are kept in a
/// ByteBuffer: here a failed allocation gives `false` or `nil`, and leaves the contents unchanged.
public final class ByteBuffer {
  private var storage: UnsafeMutableRawPointer?
  /// The size of the storage in bytes. Negative: the bytes are lent, which means that another object owns the
  /// storage.
  private var capacity = 0
  private var start = 0
  private var end = 0
  /// An object that the buffer's user attaches to the bytes. For lent bytes it is the object that owns the
  /// storage.
  public var attachment: AnyObject?
  /// Whether the buffer is a message that is sent uncompressed, whatever compression its call has. The flag
  /// stays when the contents are exchanged, and a buffer made by `lend` gets it too.
  public var staysPlain: Bool {
    get { plain.load(ordering: .relaxed) }
    set { plain.store(newValue, ordering: .relaxed) }
  }
  private let plain = Atomic<Bool>(false)

  /// An empty buffer without storage.
  public init() {}

  /// An empty buffer with room for `capacity` bytes; nil: no memory.
  public convenience init?(capacity: Int) {
    self.init()
    guard capacity >= 0, resize(to: capacity) else { return nil }
  }

  /// A buffer with a copy of `bytes`; nil: no memory.
  public convenience init?(copying bytes: ByteView) {
    self.init()
    guard let base = bytes.baseAddress, !bytes.isEmpty else { return }
    guard let memory = cm_alloc(bytes.count) else { return nil }
    memcpy(memory, base, bytes.count)
    storage = memory
    capacity = bytes.count
    end = bytes.count
  }

  /// A buffer of lent bytes: `keeper` owns them, and keeps them unchanged and at their address. The buffer
  /// never writes to them; a change of the buffer begins with a copy.
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

  /// Whether another object owns the storage.
  public var isLent: Bool { capacity < 0 }

  /// How many bytes can be read.
  public var count: Int { end &- start }

  public var isEmpty: Bool { start == end }

  /// The readable bytes. The view is valid until the buffer is next changed.
  public var view: ByteView {
    guard let storage, end > start else { return ByteView(start: nil, count: 0) }
    return ByteView(start: storage + start, count: end &- start)
  }

  /// Makes room for `additional` more bytes; the storage grows geometrically. Returns false if there is no
  /// memory, or if the number is negative or far too large; the contents are then unchanged.
  public func reserve(_ additional: Int) -> Bool {
    if additional <= capacity &- end { return additional >= 0 }
    let (needed, overflow) = count.addingReportingOverflow(additional)
    if overflow { return false }
    // Moving the contents to the front is better than growing the storage if it frees at least a quarter.
    // Then each byte is moved at most three times, and the storage is never more than twice as large as its
    // largest content.
    if needed <= capacity / 4 * 3 {
      compact()
      return true
    }
    return resize(to: grown(to: needed)) || resize(to: needed)
  }

  /// The new size of the storage. If the buffer only grows, sizes are powers of two: so if its contents never
  /// exceed a certain power of two, the storage does not exceed it either.
  private func grown(to needed: Int) -> Int {
    if capacity <= 0 || needed > 1 << 60 { return max(needed, 64) }
    if start > 0 { return max(needed, min(capacity, needed) * 2, 64) }
    return max(1 << (Int.bitWidth - (needed - 1).leadingZeroBitCount), 64)
  }

  /// Makes room so that `total` bytes in all can be readable. The storage gets no extra room, unlike with
  /// `reserve`.
  public func reserveExactly(total: Int) -> Bool {
    total <= capacity &- start || resize(to: total)
  }

  /// How many bytes in all can be readable before the storage has to grow or its contents have to move.
  var reach: Int { capacity &- start }

  /// Appends a copy of `bytes`, which may be a part of this buffer. Returns false if there is no memory; the
  /// buffer is then unchanged.
  public func append(_ bytes: ByteView) -> Bool {
    guard let base = bytes.baseAddress, !bytes.isEmpty else { return true }
    var source = base
    if bytes.count > capacity &- end {
      // `bytes` may be in this buffer's own storage, which `reserve` may move.
      let own = ownOffset(of: base)
      guard reserve(bytes.count), let storage else { return false }
      if let own { source = UnsafeRawPointer(storage + start + own) }
    }
    guard let storage else { return false }
    memmove(storage + end, source, bytes.count)
    end &+= bytes.count
    return true
  }

  /// Appends `bytes`, but does not copy bytes that are already in the free room at the buffer's end
  /// (`spare`).
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

  /// Removes `n` bytes from the front, or all bytes if there are fewer.
  public func consume(_ n: Int) {
    guard n > 0 else { return }
    if n >= count {
      start = 0
      end = 0
    } else {
      start &+= n
    }
  }

  /// Keeps only the first `n` readable bytes.
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

  /// The free room at the buffer's end, at least `n` bytes; nil: no memory. Bytes that are written there
  /// become readable by `commit`.
  public func spare(atLeast n: Int) -> UnsafeMutableRawBufferPointer? {
    guard reserve(max(n, 0)) else { return nil }
    guard let storage else { return UnsafeMutableRawBufferPointer(start: nil, count: 0) }
    return UnsafeMutableRawBufferPointer(start: storage + end, count: capacity &- end)
  }

  /// Makes the first `n` bytes of the free room (`spare`) readable.
  public func commit(_ n: Int) {
    end &+= min(max(n, 0), capacity &- end)
  }

  /// Gives the storage to the caller, with the readable bytes at its front, and returns it with their number.
  /// The caller frees it; the buffer is empty afterwards. The storage must not be lent. An empty buffer gives
  /// nil and 0.
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

  /// Makes another buffer, to which this buffer's bytes are lent. If they are lent to this buffer too, their
  /// owner keeps them, and this buffer may be changed. Otherwise the other buffer keeps this one, which must
  /// not be changed as long as the other is used. An empty buffer lends nothing.
  public func lend() -> ByteBuffer {
    let other = ByteBuffer(lent: view, by: isEmpty ? nil : isLent ? attachment : self)
    other.staysPlain = staysPlain
    return other
  }

  /// Exchanges contents, storage and attachment with `other`, which cannot fail. Afterwards this buffer has
  /// `staysPlain` if either of the two had it.
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

  /// Changes the storage to one of at least `size` bytes, with the readable bytes at its front. Returns false
  /// if there is no memory.
  private func resize(to size: Int) -> Bool {
    if size <= capacity && start == 0 { return true }
    guard size >= count else { return false }
    if start == 0 && !isLent {
      // For a large block `realloc` moves pages instead of copying bytes.
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
