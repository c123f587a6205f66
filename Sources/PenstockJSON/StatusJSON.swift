import CPenstockJansson
import PenstockCall
import PenstockWire

/// A status as JSON, with "code", "name", "message", "metadata" and "details"; nil: no memory.
public func json(_ status: Status) -> JSON.Value? {
  status.settleTrailers()
  return JSON.object { object in
    object.set("code", JSON.int(Int(status.code.rawValue)))
    object.set("name", JSON.string(status.code.name))
    object.set("message", JSON.string(status.message))
    object.set("metadata", json(status.trailers))
    object.set("details", details(status))
    if status.detailsAreMalformed {
      object.set("details_error", JSON.string("grpc-status-details-bin does not decode as google.rpc.Status"))
    }
    if let body = status.body { object.set("body", JSON.string(body.view)) }
    switch status.pushback {
    case .none: break
    case .after(let time): object.set("retry_pushback_ms", JSON.int(time / 1_000_000))
    case .never: object.set("retry_pushback_ms", JSON.int(-1))
    }
  }.value
}

/// The details of a status, as the value of "details" in JSON; nil: no memory.
func details(_ status: Status) -> JSON.Value? {
  JSON.array { details in
    for index in 0..<status.detailCount {
      if let detail = status.detail(at: index) { details.append(json(detail.typeURL, detail.value)) }
    }
  }
}

/// One detail as JSON: its fields if its type is one of google.rpc, otherwise its bytes in base64.
private func json(_ typeURL: ByteView, _ value: ByteView) -> JSON.Value? {
  var writer = DetailWriter()
  penstock_json_begin()
  let isReadable = ErrorDetail.visit(typeURL: typeURL, value: value, visitor: &writer)
  let fields = writer.finish()
  if penstock_json_is_short() {
    json_decref(fields)
    return nil
  }
  return JSON.object { object in
    object.set("@type", JSON.string(typeURL))
    if isReadable, let fields {
      object.merge(fields)
    } else {
      object.set("base64", JSON.base64(value))
    }
    if let fields { json_decref(fields) }
  }.value
}

/// Visits the fields of a detail, and builds JSON from them. The JSON objects and arrays that are not
/// finished yet form a stack, the innermost last.
private struct DetailWriter: ErrorDetailVisitor {
  private struct Level {
    let value: JSON.Value
    let isArray: Bool
    var key: ByteBuffer?
  }

  private var levels: [Level] = []
  private var root: JSON.Value?

  /// Returns the outermost object, whose reference the caller owns then; nil: there is none.
  mutating func finish() -> JSON.Value? {
    let made = root
    root = nil
    levels = []
    return made
  }

  private mutating func begin(_ value: JSON.Value?, isArray: Bool) {
    guard let value else { return }
    if levels.isEmpty {
      if let root { json_decref(root) }
      root = value
    } else {
      put(value)
    }
    levels.append(Level(value: value, isArray: isArray, key: nil))
  }

  private mutating func put(_ value: JSON.Value?) {
    guard let value else { return }
    guard let level = levels.last else {
      json_decref(value)
      return
    }
    if level.isArray {
      _ = json_array_append_new(level.value, value)
    } else if let key = level.key {
      _ = json_object_setn_new(
        level.value, key.view.baseAddress?.assumingMemoryBound(to: CChar.self) ?? cString(""), key.count,
        value)
    } else {
      json_decref(value)
    }
  }

  mutating func beginObject() { begin(json_object(), isArray: false) }
  mutating func endObject() { if !levels.isEmpty { levels.removeLast() } }
  mutating func beginArray() { begin(json_array(), isArray: true) }
  mutating func endArray() { if !levels.isEmpty { levels.removeLast() } }

  mutating func key(_ name: ByteView) {
    guard let last = levels.indices.last, let copied = ByteBuffer(copying: name) else { return }
    levels[last].key = copied
  }

  mutating func string(_ value: ByteView) { put(JSON.string(value)) }

  /// Writes an int64 as a string, as ProtoJSON does.
  mutating func int(_ value: Int64) {
    let text = ByteBuffer()
    if value < 0 { _ = text.append("-") }
    _ = appendDecimal(value.magnitude, to: text)
    put(JSON.string(text.view))
  }
}
