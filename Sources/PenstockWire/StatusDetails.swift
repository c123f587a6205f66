internal import CPenstockMemory

/// A `google.rpc.Status`: the content of `grpc-status-details-bin` (google/rpc/status.proto: code = 1,
/// message = 2, repeated google.protobuf.Any details = 3; google/protobuf/any.proto: type_url = 1, value =
/// 2).
///
/// The object owns a copy of the bytes, and its views are valid as long as the object exists. The message is
/// not changed, even if it is not UTF-8.
public final class StatusDetails {
  private struct Range {
    var offset = 0
    var count = 0
  }

  private struct Detail {
    var typeURL = Range()
    var value = Range()
  }

  private let bytes: ByteBuffer
  private var messageRange = Range()
  private var details: UnsafeMutablePointer<Detail>?

  public private(set) var code: Int32 = 0
  /// How many details there are.
  public private(set) var count = 0

  private init(_ bytes: ByteBuffer) { self.bytes = bytes }

  deinit { cm_free(details) }

  public var message: ByteView { view(messageRange) }

  /// The detail at index `at`; two empty views if there is none.
  public func detail(at: Int) -> (typeURL: ByteView, value: ByteView) {
    guard let details, at >= 0 && at < count else { return (view(Range()), view(Range())) }
    return (view(details[at].typeURL), view(details[at].value))
  }

  /// Decodes a google.rpc.Status. nil: it is malformed, or there is no memory.
  public static func decode(_ encoded: ByteView) -> StatusDetails? {
    guard let bytes = ByteBuffer(copying: encoded) else { return nil }
    let status = StatusDetails(bytes)
    return status.scan() ? status : nil
  }

  /// Calls `body` with the type URL and the value of each detail of an encoded google.rpc.Status, in order; its other
  /// fields are ignored. `body` returns false to end this. False: the bytes are malformed, so that `body` was not
  /// called for any detail; or `body` has returned false.
  public static func forEach(in encoded: ByteView, _ body: (ByteView, ByteView) -> Bool) -> Bool {
    for calls in [false, true] {
      var reader = ProtoReader(encoded)
      scan: while true {
        switch reader.next() {
        case .malformed: return false
        case .end: break scan
        case .field(number: 3, value: .bytes(let value)):
          guard let (typeURL, value) = any(value) else { return false }
          if calls, !body(typeURL, value) { return false }
        case .field: continue
        }
      }
    }
    return true
  }

  /// Reads the fields, in two passes: the first validates the bytes and counts the details, and the second
  /// stores them in memory for exactly that number. Returns false if the bytes are malformed, or if there is
  /// no memory.
  private func scan() -> Bool {
    var found = 0
    var reader = ProtoReader(bytes.view)
    scan: while true {
      switch reader.next() {
      case .malformed: return false
      case .end: break scan
      case .field(number: 1, value: .varint(let value)): code = Int32(truncatingIfNeeded: value)
      case .field(number: 2, value: .bytes(let value)): messageRange = range(value)
      case .field(number: 3, value: .bytes(let value)):
        guard readAny(value) != nil else { return false }
        found &+= 1
      case .field: continue
      }
    }
    return found == 0 || fill(found)
  }

  private func fill(_ total: Int) -> Bool {
    // `total` is at most half the number of encoded bytes, so this product does not overflow in practice.
    let (size, overflow) = total.multipliedReportingOverflow(by: MemoryLayout<Detail>.stride)
    guard !overflow, let storage = cm_alloc(size) else { return false }
    let slots = storage.bindMemory(to: Detail.self, capacity: total)
    details = slots
    var reader = ProtoReader(bytes.view)
    while count < total {
      switch reader.next() {
      case .malformed, .end: return false
      case .field(number: 3, value: .bytes(let value)):
        guard let detail = readAny(value) else { return false }
        (slots + count).initialize(to: detail)
        count &+= 1
      case .field: continue
      }
    }
    return true
  }

  private static func any(_ encoded: ByteView) -> (typeURL: ByteView, value: ByteView)? {
    let none = ByteView(start: nil, count: 0)
    var detail = (typeURL: none, value: none)
    var reader = ProtoReader(encoded)
    while true {
      switch reader.next() {
      case .malformed: return nil
      case .end: return detail
      case .field(number: 1, value: .bytes(let value)): detail.typeURL = value
      case .field(number: 2, value: .bytes(let value)): detail.value = value
      case .field: continue
      }
    }
  }

  private func readAny(_ encoded: ByteView) -> Detail? {
    StatusDetails.any(encoded).map { Detail(typeURL: range($0.typeURL), value: range($0.value)) }
  }

  /// The offset and length of `part` in `bytes`.
  private func range(_ part: ByteView) -> Range {
    guard let base = bytes.view.baseAddress, let start = part.baseAddress else { return Range() }
    return Range(offset: start - base, count: part.count)
  }

  private func view(_ range: Range) -> ByteView {
    slice(bytes.view, from: range.offset, to: range.offset &+ range.count)
  }

  /// Encodes a status and appends it to `out`. Calls `detail` once for each index from 0 to `detailCount` -
  /// 1, and uses its views before the next call. Returns false if there is no memory; `out` is then
  /// unchanged.
  public static func encode(
    code: Int32, message: ByteView, detailCount: Int,
    detail: (Int) -> (typeURL: ByteView, value: ByteView), into out: ByteBuffer
  ) -> Bool {
    let before = out.count
    var writer = ProtoWriter(into: out)
    if code != 0 { writer.int(1, Int64(code)) }
    if !message.isEmpty { writer.bytes(2, message) }
    for i in 0..<max(detailCount, 0) where writer.isComplete {
      let (typeURL, value) = detail(i)
      guard let urlSize = fieldSize(1, typeURL), let valueSize = fieldSize(2, value) else {
        out.truncate(to: before)
        return false
      }
      let (size, overflow) = urlSize.addingReportingOverflow(valueSize)
      if overflow {
        out.truncate(to: before)
        return false
      }
      writer.messageHeader(3, length: size)
      if !typeURL.isEmpty { writer.bytes(1, typeURL) }
      if !value.isEmpty { writer.bytes(2, value) }
    }
    if !writer.isComplete { out.truncate(to: before) }
    return writer.isComplete
  }

  private static func fieldSize(_ field: UInt32, _ value: ByteView) -> Int? {
    value.isEmpty ? 0 : ProtoWriter.bytesFieldSize(field, value.count)
  }
}
