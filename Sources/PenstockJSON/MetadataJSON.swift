import CPenstockJansson
public import PenstockCall
public import PenstockWire

/// Whether a user must not set a metadata entry with this name: the names that HeaderRules reserves, and
/// "user-agent". The channel sets "user-agent" itself; a second one would be dropped before the request is
/// sent.
private func isReserved(_ name: ByteView) -> Bool {
  HeaderRules.isReserved(name) || bytesEqual(name, "user-agent")
}

/// Checks a name and a value from the user. Then replaces all values of the name, or adds one.
public func change(_ metadata: Metadata, _ name: ByteView, _ value: ByteView, replacing: Bool) -> Outcome {
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

/// Metadata as JSON, {"name": ["v1", "v2"]}. The names are in the order in which they first occur. nil: no
/// memory.
public func json(_ metadata: Metadata) -> JSON.Value? {
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

/// Reads metadata from JSON, {"name": "value" or ["v1", "v2"]}, into `metadata`, which is empty before.
public func read(_ reader: JSONReader, into metadata: Metadata) -> Failure? {
  reader.members { name, member in read(member, named: name, into: metadata) }
}

/// Reads one member of the JSON of metadata: a name with its value or values.
public func read(_ member: JSONReader, named name: ByteView, into metadata: Metadata) -> Failure? {
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
