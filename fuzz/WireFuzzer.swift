import PenstockWire

// Fuzzes the decoders of PenstockWire. They must not trap. If a decoded value is encoded again, the encoding
// must decode to the same value.

private struct Silent: ErrorDetailVisitor {
  var depth = 0

  mutating func beginObject() { depth += 1 }
  mutating func endObject() { depth -= 1 }
  mutating func beginArray() { depth += 1 }
  mutating func endArray() { depth -= 1 }
  mutating func key(_ name: ByteView) { precondition(UTF8Repair.isValid(name)) }
  mutating func string(_ value: ByteView) { precondition(UTF8Repair.isValid(value)) }
  mutating func int(_ value: Int64) {}
}

private let names: [StaticString] = [
  "x/google.rpc.ErrorInfo", "x/google.rpc.RetryInfo", "x/google.rpc.DebugInfo", "x/google.rpc.QuotaFailure",
  "x/google.rpc.PreconditionFailure", "x/google.rpc.BadRequest", "x/google.rpc.RequestInfo",
  "x/google.rpc.ResourceInfo", "x/google.rpc.Help", "x/google.rpc.LocalizedMessage",
]

/// Decodes a stream in pieces of `piece` bytes. Returns the number of messages, the number of their bytes,
/// and whether decoding failed. The result must not depend on `piece`.
private func messages(_ stream: ByteView, piece: Int) -> (count: Int, bytes: Int, failed: Bool) {
  var decoder = MessageDecoder(limit: 1 << 16)
  var result = (count: 0, bytes: 0, failed: false)
  var from = 0
  while from < stream.count {
    let to = min(stream.count, from + piece)
    let (consumed, event) = decoder.push(ByteView(rebasing: stream[from..<to]))
    from += consumed
    switch event {
    case .needsMore: precondition(from == to)
    case .message(let body, _):
      result.count += 1
      result.bytes += body.count
    case .failed:
      result.failed = true
      return result
    }
  }
  return result
}

private func statusDetails(_ input: ByteView) {
  guard let status = StatusDetails.decode(input) else { return }
  let out = ByteBuffer()
  precondition(
    StatusDetails.encode(
      code: status.code, message: status.message, detailCount: status.count,
      detail: { status.detail(at: $0) },
      into: out))
  guard let again = StatusDetails.decode(out.view) else { preconditionFailure("did not decode again") }
  precondition(again.code == status.code && bytesEqual(again.message, status.message))
  precondition(again.count == status.count)
  for i in 0..<status.count {
    precondition(bytesEqual(again.detail(at: i).typeURL, status.detail(at: i).typeURL))
    precondition(bytesEqual(again.detail(at: i).value, status.detail(at: i).value))
  }
}

private func texts(_ input: ByteView) {
  let decoded = ByteBuffer()
  let coded = ByteBuffer()
  let again = ByteBuffer()
  if Base64.decode(input, into: decoded) == .ok {
    precondition(Base64.encode(decoded.view, padded: false, into: coded))
    precondition(Base64.decode(coded.view, into: again) == .ok && bytesEqual(decoded.view, again.view))
  }
  for buffer in [decoded, coded, again] { buffer.removeAll(keepingCapacity: true) }
  precondition(PercentCoding.decode(input, into: decoded))
  precondition(PercentCoding.encode(decoded.view, into: coded))
  precondition(PercentCoding.decode(coded.view, into: again) && bytesEqual(decoded.view, again.view))
  coded.removeAll(keepingCapacity: true)
  precondition(UTF8Repair.repair(input, into: coded) && UTF8Repair.isValid(coded.view))
}

private func headers(_ input: ByteView) {
  HeaderRules.forEachBinaryValue(input) { _ = Base64.decode($0, into: ByteBuffer()) }
  _ = (HeaderRules.isReserved(input), HeaderRules.isBinary(input), HeaderRules.isValidName(input))
  _ = (HeaderRules.isValidASCIIValue(input), ContentType.classify(input))
  _ = StatusCode.parse(input)
  if let left = Timeout.parse(input) { precondition(Timeout.write(nanoseconds: left, into: ByteBuffer())) }
  let agent = ByteBuffer()
  precondition(UserAgent.compose(version: names[0].bytes, application: input, into: agent))
  precondition(HeaderRules.isValidASCIIValue(agent.view))
}

/// Fuzzes one decoder: the first byte of the input chooses it, the rest is the bytes that a peer sends.
func fuzzWire(_ all: ByteView) {
  guard let kind = all.first else { return }
  let input = ByteView(rebasing: all[1...])
  switch Int(kind) % 16 {
  case 0: statusDetails(input)
  case 1: texts(input)
  case 2: headers(input)
  case 3, 4, 5:
    let piece = Int(input.first ?? 0) + 1
    precondition(messages(input, piece: piece) == messages(input, piece: Int.max >> 1))
  case let n:
    var visitor = Silent()
    _ = ErrorDetail.visit(typeURL: names[n - 6].bytes, value: input, visitor: &visitor)
    precondition(visitor.depth == 0)
  }
}
