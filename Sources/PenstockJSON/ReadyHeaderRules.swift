import PenstockCall
import PenstockReady
import PenstockWire

// Reads the rules of penstock_ready_header_rules from JSON.

public func read(_ reader: JSONReader, into lists: inout HeaderEdits.Lists) -> Failure? {
  reader.members { key, member in
    if bytesEqual(key, "request") { return readRules(member) { lists.request = $0 } }
    if bytesEqual(key, "headers") { return readRules(member) { lists.headers = $0 } }
    if bytesEqual(key, "trailers") { return readRules(member) { lists.trailers = $0 } }
    return member.unknown
  }
}

private func readRules(_ reader: JSONReader, _ into: ([HeaderEdits.Edit]) -> Void) -> Failure? {
  var edits: [HeaderEdits.Edit] = []
  let failure = reader.elements { one in
    var rule = Rule()
    let failure = one.members { key, member in
      for verb in Rule.verbs where bytesEqual(key, verb) {
        if rule.verb != nil {
          return member.fail(because: ("a rule does one thing only" as StaticString).bytes)
        }
        rule.verb = verb
        return readName(member) { rule.name = $0 }
      }
      if bytesEqual(key, "to") { return readName(member) { rule.other = $0 } }
      if bytesEqual(key, "value") {
        rule.value = member
        return member.string == nil ? member.fail("a string") : nil
      }
      return member.unknown
    }
    if let failure { return failure }
    return rule.read(one) { edits.append($0) }
  }
  into(edits)
  return failure
}

/// Reads the name of a header. A reserved name is a failure, because metadata can't have it.
private func readName(_ member: JSONReader, _ into: (ByteBuffer) -> Void) -> Failure? {
  var name: ByteBuffer?
  if let failure = member.headerName({ name = $0 }) { return failure }
  guard let name else { return nil }
  if HeaderRules.isReserved(name.view) || bytesEqual(name.view, "user-agent") {
    return member.fail(because: ("a reserved name" as StaticString).bytes)
  }
  into(name)
  return nil
}

private struct Rule {
  static var verbs: [StaticString] { ["set", "add", "remove", "rename"] }

  var verb: StaticString?
  var name = ByteBuffer()
  var other: ByteBuffer?
  var value: JSONReader?

  func read(_ reader: JSONReader, _ into: (HeaderEdits.Edit) -> Void) -> Failure? {
    guard let verb else {
      return reader.fail("one of \"set\", \"add\", \"remove\", \"rename\"", hasType: true)
    }
    let word = verb.bytes
    let isChange = bytesEqual(word, "set") || bytesEqual(word, "add")
    if isChange != (value != nil) || bytesEqual(word, "rename") != (other != nil) {
      return reader.fail(
        because: ("\"set\" and \"add\" have a \"value\", only \"rename\" has a \"to\"" as StaticString).bytes)
    }
    if let value {
      var text: ByteBuffer?
      if let failure = bytes(of: value, { text = $0 }) { return failure }
      guard let text else { return nil }
      into(bytesEqual(word, "set") ? .set(name, text) : .add(name, text))
    } else if let other {
      guard HeaderRules.isBinary(name.view) == HeaderRules.isBinary(other.view),
        !bytesEqual(name.view, other.view)
      else {
        return reader.fail(
          because: ("\"rename\" needs two different names: both or neither end with \"-bin\"" as StaticString)
            .bytes)
      }
      into(.rename(name, to: other))
    } else {
      into(.remove(name))
    }
    return nil
  }

  private func bytes(of value: JSONReader, _ into: (ByteBuffer) -> Void) -> Failure? {
    guard let text = value.string else { return value.fail("a string") }
    let bytes = ByteBuffer()
    if HeaderRules.isBinary(name.view) {
      switch Base64.decode(text, into: bytes) {
      case .ok: break
      case .malformed: return value.fail(because: ("malformed base64" as StaticString).bytes)
      case .noMemory: return Failure(.noMemory, "no memory")
      }
    } else {
      guard HeaderRules.isValidASCIIValue(text) else {
        return value.failValue(text)
      }
      guard bytes.append(text) else { return Failure(.noMemory, "no memory") }
    }
    into(bytes)
    return nil
  }
}
