import CPenstockJansson
import PenstockWire
import PenstockLink

/// Reads requests in JSON. A service needs at most one member of a request.
enum JSONText {
  enum Outcome {
    case malformed
    case absent
    case text(ByteBuffer)
  }

  /// Reads the member `name` of the JSON object in `bytes`, which has to be a string.
  static func string(_ name: StaticString, of bytes: ByteView) -> Outcome {
    var isShort = false
    var error = json_error_t()
    let start = bytes.baseAddress?.assumingMemoryBound(to: CChar.self)
    guard let start, let root = penstock_json_load(start, bytes.count, &error, &isShort) else {
      return .malformed
    }
    defer { json_decref(root) }
    guard root.pointee.type == JSON_OBJECT else { return .malformed }
    let key = name.bytes.baseAddress?.assumingMemoryBound(to: CChar.self)
    guard let member = json_object_get(root, key) else { return .absent }
    guard member.pointee.type == JSON_STRING, let text = json_string_value(member) else { return .malformed }
    return .text(Text().put(ByteView(start: text, count: json_string_length(member))))
  }
}
