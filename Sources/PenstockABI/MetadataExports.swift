import CPenstockJansson
import CPenstockMemory
public import CPenstock
import PenstockCall
import PenstockWire
import PenstockLink

// The functions of metadata.h.

@_cdecl("penstock_metadata_new") @implementation
public func penstock_metadata_new(_ metadata: UnsafeMutablePointer<OpaquePointer?>!) -> penstock_result {
  guard let metadata else { return PENSTOCK_E_INVALID_ARGUMENT }
  if memoryIsLow { return PENSTOCK_E_NO_MEMORY }
  metadata.pointee = retained(Metadata())
  return PENSTOCK_OK
}

@_cdecl("penstock_metadata_retain") @implementation
public func penstock_metadata_retain(_ metadata: OpaquePointer!) -> OpaquePointer! {
  retain(metadata, Metadata.self)
}

@_cdecl("penstock_metadata_release") @implementation
public func penstock_metadata_release(_ metadata: OpaquePointer!) { release(metadata, Metadata.self) }

/// Whether a user must not set a metadata entry with this name: the names that HeaderRules reserves, and
/// "user-agent". The channel sets "user-agent" itself; a second one would be dropped before the request is
/// sent.
private func isReserved(_ name: ByteView) -> Bool {
  HeaderRules.isReserved(name) || bytesEqual(name, "user-agent")
}

/// Checks a name and a value from the user. Then replaces all values of the name, or adds one.
func change(_ metadata: Metadata, _ name: ByteView, _ value: ByteView, replacing: Bool) -> Outcome {
  if metadata.isReadOnly { return .state }
  let lowered = ByteBuffer()
  guard HeaderRules.lowercased(name, into: lowered) else { return .noMemory }
  guard HeaderRules.isValidName(lowered.view), !isReserved(lowered.view) else {
    return .invalidArgument
  }
  guard HeaderRules.isBinary(lowered.view) || HeaderRules.isValidASCIIValue(value) else {
    return .invalidArgument
  }
  return replacing ? metadata.set(lowered.view, value) : metadata.add(lowered.view, value)
}

private func change(
  _ handle: OpaquePointer?, _ name: UnsafePointer<CChar>?, _ value: ByteView?, replacing: Bool
) -> penstock_result {
  guard let handle, let name, let value else { return PENSTOCK_E_INVALID_ARGUMENT }
  return change(object(handle, Metadata.self), bytes(name), value, replacing: replacing).rawValue
}

@_cdecl("penstock_metadata_set") @implementation
public func penstock_metadata_set(
  _ metadata: OpaquePointer!, _ name: UnsafePointer<CChar>!, _ value: UnsafePointer<CChar>!
) -> penstock_result {
  change(metadata, name, value.map { bytes($0) }, replacing: true)
}

@_cdecl("penstock_metadata_add") @implementation
public func penstock_metadata_add(
  _ metadata: OpaquePointer!, _ name: UnsafePointer<CChar>!, _ value: UnsafePointer<CChar>!
) -> penstock_result {
  change(metadata, name, value.map { bytes($0) }, replacing: false)
}

@_cdecl("penstock_metadata_set_bytes") @implementation
public func penstock_metadata_set_bytes(
  _ metadata: OpaquePointer!, _ name: UnsafePointer<CChar>!, _ value: UnsafeRawPointer!, _ length: Int
) -> penstock_result {
  change(metadata, name, bytes(value, length), replacing: true)
}

@_cdecl("penstock_metadata_add_bytes") @implementation
public func penstock_metadata_add_bytes(
  _ metadata: OpaquePointer!, _ name: UnsafePointer<CChar>!, _ value: UnsafeRawPointer!, _ length: Int
) -> penstock_result {
  change(metadata, name, bytes(value, length), replacing: false)
}

@_cdecl("penstock_metadata_remove") @implementation
public func penstock_metadata_remove(_ metadata: OpaquePointer!, _ name: UnsafePointer<CChar>!)
  -> penstock_result
{
  guard let metadata, let name else { return PENSTOCK_E_INVALID_ARGUMENT }
  let all = object(metadata, Metadata.self)
  if all.isReadOnly { return PENSTOCK_E_STATE }
  let lowered = ByteBuffer()
  guard HeaderRules.lowercased(bytes(name), into: lowered) else { return PENSTOCK_E_NO_MEMORY }
  return all.remove(lowered.view).rawValue
}

@_cdecl("penstock_metadata_count") @implementation
public func penstock_metadata_count(_ metadata: OpaquePointer!) -> Int {
  metadata.map { object($0, Metadata.self).count } ?? 0
}

@_cdecl("penstock_metadata_get") @implementation
public func penstock_metadata_get(
  _ metadata: OpaquePointer!, _ name: UnsafePointer<CChar>!, _ index: Int,
  _ value: UnsafeMutablePointer<UnsafeRawPointer?>!, _ length: UnsafeMutablePointer<Int>!
) -> penstock_result {
  guard let metadata, let name, let value else { return PENSTOCK_E_INVALID_ARGUMENT }
  let all = object(metadata, Metadata.self)
  let lowered = ByteBuffer()
  guard HeaderRules.lowercased(bytes(name), into: lowered) else { return PENSTOCK_E_NO_MEMORY }
  guard let position = all.index(of: lowered.view, occurrence: index) else { return PENSTOCK_E_NOT_FOUND }
  let found = all.value(at: position)
  value.pointee = found.baseAddress
  length?.pointee = found.count
  return PENSTOCK_OK
}

@_cdecl("penstock_metadata_at") @implementation
public func penstock_metadata_at(
  _ metadata: OpaquePointer!, _ index: Int, _ name: UnsafeMutablePointer<UnsafePointer<CChar>?>!,
  _ value: UnsafeMutablePointer<UnsafeRawPointer?>!, _ length: UnsafeMutablePointer<Int>!
) -> penstock_result {
  guard let metadata, let name, let value else { return PENSTOCK_E_INVALID_ARGUMENT }
  let all = object(metadata, Metadata.self)
  guard index >= 0, index < all.count else { return PENSTOCK_E_NOT_FOUND }
  name.pointee = cString(all.name(at: index))
  value.pointee = all.value(at: index).baseAddress
  length?.pointee = all.value(at: index).count
  return PENSTOCK_OK
}

/// Metadata as JSON, {"name": ["v1", "v2"]}. The names are in the order in which they first occur. nil: no
/// memory.
func json(_ metadata: Metadata) -> JSON.Value? {
  var isComplete = true
  let made = JSON.object { object in
    for index in 0..<metadata.count where isComplete {
      let name = metadata.name(at: index)
      let value = metadata.value(at: index)
      if object.get(name) == nil { object.set(name, json_array()) }
      let text = HeaderRules.isBinary(name) ? JSON.base64(value) : JSON.text(value)
      // This also fails if the array or `text` is NULL because there was no memory. jansson releases `text`
      // whether or not it fails.
      isComplete = json_array_append_new(object.get(name), text) == 0
    }
  }.value
  guard isComplete else {
    json_decref(made)
    return nil
  }
  return made
}

@_cdecl("penstock_metadata_json") @implementation
public func penstock_metadata_json(
  _ metadata: OpaquePointer!, _ text: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>!
) -> penstock_result {
  guard let metadata, let text else { return PENSTOCK_E_INVALID_ARGUMENT }
  guard let made = JSON.dump(json(object(metadata, Metadata.self))) else { return PENSTOCK_E_NO_MEMORY }
  text.pointee = made
  return PENSTOCK_OK
}

/// Reads metadata from JSON, {"name": "value" or ["v1", "v2"]}, into `metadata`, which is empty before.
func read(_ reader: JSONReader, into metadata: Metadata) -> Failure? {
  reader.members { name, member in read(member, named: name, into: metadata) }
}

/// Reads one member of the JSON of metadata: a name with its value or values.
func read(_ member: JSONReader, named name: ByteView, into metadata: Metadata) -> Failure? {
  if !member.isArray { return readValue(member, name, into: metadata) }
  return member.elements { readValue($0, name, into: metadata) }
}

private func readValue(_ reader: JSONReader, _ name: ByteView, into metadata: Metadata) -> Failure? {
  var given = reader
  var isEncoded = HeaderRules.isBinary(name)
  if reader.isObject {
    let failure = reader.members { key, member in
      guard bytesEqual(key, "base64") else { return member.unknown }
      given = member
      isEncoded = true
      return member.string == nil ? member.fail("a base64 string") : nil
    }
    if let failure { return failure }
  }
  guard let text = given.string else { return reader.fail("a string, or an array of strings") }
  return withExtendedLifetime(given) {
    readValue(text, isEncoded: isEncoded, name, reader, into: metadata)
  }
}

/// Adds the value `text` of `name`, which `reader` has. `isEncoded`: the text is base64.
private func readValue(
  _ text: ByteView, isEncoded: Bool, _ name: ByteView, _ reader: JSONReader, into metadata: Metadata
) -> Failure? {
  let decoded = ByteBuffer()
  var outcome = Outcome.ok
  if !isEncoded {
    outcome = change(metadata, name, text, replacing: false)
  } else {
    // A text with commas stands for several binary values, as in a header field.
    HeaderRules.forEachBinaryValue(text) { one in
      guard outcome == .ok else { return }
      decoded.removeAll(keepingCapacity: true)
      switch Base64.decode(one, into: decoded) {
      case .ok: outcome = change(metadata, name, decoded.view, replacing: false)
      case .malformed: outcome = .invalidJSON
      case .noMemory: outcome = .noMemory
      }
    }
  }
  switch outcome {
  case .ok: return nil
  case .noMemory: return Failure(.noMemory, "no memory")
  case .invalidJSON: return reader.fail(because: ("malformed base64" as StaticString).bytes)
  default:
    if isReserved(name) { return reader.fail(because: ("a reserved name" as StaticString).bytes) }
    let lowered = ByteBuffer()
    guard HeaderRules.lowercased(name, into: lowered) else { return Failure(.noMemory, "no memory") }
    if !HeaderRules.isValidName(lowered.view) {
      return reader.fail(
        because: ("a name has letters, digits, \"_\", \"-\" and \".\" only" as StaticString).bytes)
    }
    return reader.failValue(isEncoded ? decoded.view : text)
  }
}

extension JSONReader {
  /// The failure for a text that is not allowed as the value of a header field.
  func failValue(_ text: ByteView) -> Failure {
    let words: StaticString =
      text.first == 0x20 || text.last == 0x20
      ? "a value may not begin or end with a space"
      : "a value has visible ASCII and spaces only, unless its name ends with \"-bin\""
    return fail(because: words.bytes)
  }
}

@_cdecl("penstock_metadata_set_json") @implementation
public func penstock_metadata_set_json(
  _ metadata: OpaquePointer!, _ text: UnsafePointer<CChar>!, _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let metadata, let text else {
    return report(.invalidArgument, "metadata and json must not be NULL", error)
  }
  let all = object(metadata, Metadata.self)
  if all.isReadOnly { return report(.state, "this metadata is read-only", error) }
  let fresh = Metadata()
  if let failure = JSONReader.parse(bytes(text), { read($0, into: fresh) }) { return failure.report(error) }
  all.replace(with: fresh)
  return PENSTOCK_OK
}
