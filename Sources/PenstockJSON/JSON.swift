public import CPenstockJansson
import CPenstockMemory
public import PenstockWire

/// Writes JSON with jansson. Each value has one reference. An object or array takes over the reference of
/// each value that is put into it.
public enum JSON {
  public typealias Value = UnsafeMutablePointer<json_t>

  public static var null: Value? { json_null() }

  public static func bool(_ value: Bool) -> Value? { value ? json_true() : json_false() }

  public static func int(_ value: Int) -> Value? { json_integer(json_int_t(value)) }

  public static func int(_ value: UInt64) -> Value? { json_integer(json_int_t(Int64(clamping: value))) }

  /// A JSON string; U+FFFD replaces invalid UTF-8.
  public static func string(_ bytes: ByteView) -> Value? {
    if let value = checked(bytes) { return value }
    let repaired = ByteBuffer()
    guard UTF8Repair.repair(bytes, into: repaired) else { return nil }
    return checked(repaired.view)
  }

  public static func string(_ text: StaticString) -> Value? { string(text.bytes) }

  /// A JSON string of bytes that end with a NUL, which is left out.
  public static func terminated(_ text: ByteBuffer) -> Value? {
    string(text.isEmpty ? text.view : ByteView(rebasing: text.view.dropLast()))
  }

  static func base64(_ bytes: ByteView) -> Value? {
    let encoded = ByteBuffer()
    guard Base64.encode(bytes, padded: true, into: encoded) else { return nil }
    return checked(encoded.view)
  }

  /// The JSON of a metadata value: a string, or {"base64": ...} if the value is not UTF-8.
  public static func text(_ bytes: ByteView) -> Value? {
    if UTF8Repair.isValid(bytes) { return checked(bytes) }
    return object { $0.set("base64", base64(bytes)) }.value
  }

  private static func checked(_ bytes: ByteView) -> Value? {
    guard !bytes.isEmpty else { return json_stringn(cString(""), 0) }
    return json_stringn(bytes.baseAddress?.assumingMemoryBound(to: CChar.self), bytes.count)
  }

  public static func object(_ fill: (Object) -> Void) -> Object {
    let object = Object(json_object())
    fill(object)
    return object
  }

  public static func array(_ fill: (Array) -> Void) -> Value? {
    let array = Array(json_array())
    fill(array)
    if array.isComplete { return array.value }
    json_decref(array.value)
    return nil
  }

  public final class Object {
    private let made: Value?
    private var isComplete: Bool

    init(_ made: Value?) {
      self.made = made
      isComplete = made != nil
    }

    public func set(_ key: StaticString, _ value: Value?) { set(key.bytes, value) }

    /// Sets a member of the object, which takes over the reference to `value`.
    public func set(_ key: ByteView, _ value: Value?) {
      let start = key.baseAddress?.assumingMemoryBound(to: CChar.self) ?? cString("")
      // The call also fails if `value` is NULL. jansson releases `value` whether or not the call fails.
      if json_object_setn_new(made, start, key.count, value) != 0 { isComplete = false }
    }

    /// The member called `key`. The object still owns the reference to it.
    func get(_ key: ByteView) -> Value? {
      json_object_getn(made, key.baseAddress?.assumingMemoryBound(to: CChar.self) ?? cString(""), key.count)
    }

    /// Adds all members of `other`. The caller still owns the reference to `other`.
    func merge(_ other: Value) {
      if made == nil || json_object_update(made, other) != 0 { isComplete = false }
    }

    /// The finished object. The caller owns the reference to it. nil: no memory.
    public var value: Value? {
      if isComplete { return made }
      json_decref(made)
      return nil
    }

    /// The text of the object, which the caller frees with `free`; nil: no memory.
    public func text() -> UnsafeMutablePointer<CChar>? { JSON.dump(value) }
  }

  public final class Array {
    let value: Value?
    private(set) var isComplete: Bool

    init(_ value: Value?) {
      self.value = value
      isComplete = value != nil
    }

    public func append(_ element: Value?) {
      if json_array_append_new(value, element) != 0 { isComplete = false }
    }
  }

  /// The text of `value`, whose reference this function takes over. The caller frees the text with `free`;
  /// nil: no memory.
  public static func dump(_ value: Value?) -> UnsafeMutablePointer<CChar>? {
    guard let value else { return nil }
    let text = penstock_json_dump(value)
    json_decref(value)
    return text
  }
}
