import CPenstockMemory
import PenstockWire

/// A header field, with pointers to its name and its value. It has the memory layout of nghttp2's
/// `nghttp2_nv`, so that a list need not be converted.
public struct Field {
  public var name: UnsafeMutablePointer<UInt8>?
  public var value: UnsafeMutablePointer<UInt8>?
  public var nameCount: Int
  public var valueCount: Int
  var hints: Hints

  /// Hints for the sender. The bits are the flags of nghttp2.
  struct Hints: OptionSet {
    let rawValue: UInt8
    /// The field's value is rarely sent twice. In HPACK's table it would only displace useful fields.
    static var comesOnce: Hints { Hints(rawValue: 1) }
    /// The bytes of the name (`valueLasts`: of the value) live as long as the list, so the sender need not
    /// copy them.
    static var nameLasts: Hints { Hints(rawValue: 2) }
    static var valueLasts: Hints { Hints(rawValue: 4) }
  }
}

/// The header list of a request, which the sender copies. The list has pointers to names and values, and does
/// not copy them. It stores only values that are made for the list, such as a timeout or base64. One list
/// serves all requests of a connection, one after the other.
public final class FieldList {
  public private(set) var fields: UnsafeMutablePointer<Field>?
  public private(set) var count = 0
  private var capacity = 0
  /// The size of the list in bytes, by the rule of RFC 9113 section 6.5.2.
  public private(set) var size = 0
  private let made = ByteBuffer()
  /// The fields that all requests of a channel have, with their number and size, and the object that owns the
  /// bytes of these fields.
  private var common: UnsafeMutablePointer<Field>?
  private var commonCount = 0
  private var commonSize = 0
  private var commonOwner: AnyObject?
  let blocks = KnownBlocks()
  /// The number of the kept header block in `blocks` that the request uses. This list then has no fields, and
  /// `made` has the fields that are inserted into the block. 0: the request's fields are in this list.
  public private(set) var block: UInt8 = 0
  /// The path of a request that has only the common fields, this path, and perhaps inserted fields
  /// (`InsertedField`); otherwise nil.
  public var path: ByteBuffer?
  /// The number of inserted fields (`InsertedField`) in the list. They follow the pseudo headers.
  private var inserted = 0
  /// Whether the request has no body, so that END_STREAM is in the HEADERS frame.
  public var hasNoBody = false

  /// Whether messages flow in both directions on the request's stream.
  public var isDuplex = false

  deinit {
    free(fields)
    free(common)
  }

  /// Empties the list for a new request.
  public func clear() {
    count = 0
    size = 0
    block = 0
    inserted = 0
    hasNoBody = false
    if path != nil { path = nil }
    made.removeAll(keepingCapacity: true)
  }

  /// Called for a request of `owner` that has only the common fields, `path`, and perhaps inserted fields.
  /// True: `blocks` has its header block, so the caller need not add fields. `timeout`: in nanoseconds; nil:
  /// no timeout. `length`: the length of the body; -1: no field for it.
  public func repeats(
    _ owner: AnyObject, _ path: ByteBuffer, _ field: InsertedField, timeout: UInt64?, length: Int = -1
  ) -> Bool {
    guard let known = blocks.find(owner, path) else { return false }
    if let timeout, !insert(field, timeout) { return false }
    if length >= 0, !insert(.contentLength, UInt64(length)) { return false }
    block = known.number
    size += known.size
    return true
  }

  private func insert(_ field: InsertedField, _ value: UInt64) -> Bool {
    guard blocks.reserveInserts(), let count = field.encode(value, into: made) else { return false }
    size += field.name.count + count + 32
    return true
  }

  /// Called when nghttp2 has accepted the list as the request of stream `id`.
  func submitted(_ id: Int32) {
    if block == 0 { return spelled(id) }
    if made.isEmpty { blocks.repeated(id) } else { blocks.repeated(id, inserting: made.view) }
  }

  private func spelled(_ id: Int32) {
    var size = size
    for index in 0..<inserted {
      let at = KnownBlocks.insertIndex + index
      size -= name(at: at).count + value(at: at).count + 32
    }
    blocks.spelled(id, commonOwner, path, inserted: inserted, size: size)
  }

  /// Adds an inserted field directly after the pseudo headers.
  public func add(_ field: InsertedField, _ value: UInt64) -> Bool {
    guard let room = room(InsertedField.mostBytes) else { return false }
    let before = room.count
    guard field.write(value, into: room), add(field.name, made: room.count - before, indexed: false) else {
      return false
    }
    moveLast(to: KnownBlocks.insertIndex)
    inserted += 1
    return true
  }

  /// Empties the list, and adds the common fields of the requests of `owner`. `add` makes these fields when
  /// the list is used for `owner` for the first time. False: no memory.
  public func begin(_ owner: AnyObject, _ add: () -> Bool) -> Bool {
    clear()
    if commonOwner === owner, let fields, let common {
      memcpy(fields, common, commonCount * MemoryLayout<Field>.stride)
      count = commonCount
      size = commonSize
      return true
    }
    guard add(), let fields else { return false }
    let bytes = count * MemoryLayout<Field>.stride
    guard let memory = realloc(common, bytes) else { return false }
    memcpy(memory, fields, bytes)
    common = memory.assumingMemoryBound(to: Field.self)
    commonCount = count
    commonSize = size
    commonOwner = owner
    return true
  }

  /// Changes the value of the common field at `index`. The sender copies the new value.
  public func setValue(at index: Int, _ value: ByteView) {
    guard index < count, let fields else { return }
    size += value.count - fields[index].valueCount
    fields[index].value = FieldList.mutable(value)
    fields[index].valueCount = value.count
    fields[index].hints.remove(.valueLasts)
  }

  /// Changes the value of the common field at `index` to the three parts in a row. False: no memory.
  public func setValue(at index: Int, _ first: ByteView, _ second: ByteView, _ third: ByteView) -> Bool {
    let most = first.count + second.count + third.count
    guard index < count, let fields, let room = room(most), room.append(first), room.append(second),
      room.append(third)
    else { return false }
    size += most - fields[index].valueCount
    fields[index].value = FieldList.mutable(ByteView(rebasing: room.view.suffix(most)))
    fields[index].valueCount = most
    fields[index].hints.remove(.valueLasts)
    return true
  }

  /// Moves the last field to `index`. The fields from `index` on move back by one place.
  public func moveLast(to index: Int) {
    guard index < count, let fields else { return }
    let last = fields[count - 1]
    memmove(fields + index + 1, fields + index, (count - 1 - index) * MemoryLayout<Field>.stride)
    fields[index] = last
  }

  public func name(at index: Int) -> ByteView {
    fields.map { ByteView(start: $0[index].name, count: $0[index].nameCount) }
      ?? ByteView(start: nil, count: 0)
  }

  /// Whether the name is a constant of the program.
  func hasKnownName(at index: Int) -> Bool {
    index < count && fields?[index].hints.contains(.nameLasts) == true
  }

  public func value(at index: Int) -> ByteView {
    fields.map { ByteView(start: $0[index].value, count: $0[index].valueCount) }
      ?? ByteView(start: nil, count: 0)
  }

  // All functions below that add fields return false if there is no memory.

  public func add(_ name: ByteView, _ value: ByteView) -> Bool { add(name, value, []) }

  public func add(_ name: StaticString, _ value: ByteView) -> Bool {
    add(name.bytes, value, .nameLasts)
  }

  /// Adds a field whose value lives as long as the list.
  public func add(_ name: StaticString, lasting value: ByteView) -> Bool {
    add(name.bytes, value, [.nameLasts, .valueLasts])
  }

  public func add(_ name: StaticString, _ value: StaticString) -> Bool {
    add(name.bytes, value.bytes, [.nameLasts, .valueLasts])
  }

  /// The buffer `made`, for a value that is made for the list, with room for `most` more bytes. The caller
  /// appends the value, and then adds or sets the field. nil: no memory.
  public func room(_ most: Int) -> ByteBuffer? {
    let before = made.view
    guard made.reserve(most) else { return nil }
    rebase(from: before)
    return made
  }

  /// Adds a field whose value is the last `count` bytes of `made`. `indexed` is false for a value that is
  /// rarely sent twice, so that it displaces no useful field in HPACK's table.
  public func add(_ name: ByteView, made count: Int, indexed: Bool) -> Bool {
    add(name, ByteView(rebasing: made.view.suffix(count)), indexed ? [] : .comesOnce)
  }

  private func add(_ name: ByteView, _ value: ByteView, _ hints: Field.Hints) -> Bool {
    guard count < capacity || grow(), let fields else { return false }
    fields[count] = Field(
      name: FieldList.mutable(name), value: FieldList.mutable(value), nameCount: name.count,
      valueCount: value.count, hints: hints)
    count += 1
    size += name.count + value.count + 32
    return true
  }

  private func grow() -> Bool {
    let wanted = max(capacity * 2, 32)
    let (size, overflow) = wanted.multipliedReportingOverflow(by: MemoryLayout<Field>.stride)
    guard !overflow, let memory = realloc(fields, size) else { return false }
    fields = memory.assumingMemoryBound(to: Field.self)
    capacity = wanted
    return true
  }

  /// Called after the bytes of `made` have moved in memory. Corrects the fields' pointers to these bytes.
  private func rebase(from before: ByteView) {
    guard let fields, let old = before.baseAddress, let new = made.view.baseAddress, old != new else {
      return
    }
    for index in 0..<count {
      guard let value = fields[index].value, fields[index].valueCount > 0 else { continue }
      let offset = UnsafeRawPointer(value) - old
      if offset >= 0, offset < before.count {
        fields[index].value = FieldList.mutable(ByteView(start: new + offset, count: 0))
      }
    }
  }

  /// A mutable pointer to `bytes`, because nghttp2's struct needs one. nghttp2 only reads the bytes.
  private static func mutable(_ bytes: ByteView) -> UnsafeMutablePointer<UInt8>? {
    bytes.baseAddress.map { UnsafeMutablePointer(mutating: $0.assumingMemoryBound(to: UInt8.self)) }
  }
}
