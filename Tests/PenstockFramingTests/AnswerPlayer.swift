import PenstockCall
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockHTTP
@testable import PenstockLoop
@testable import PenstockFraming

/// The events that a call gets from an answer. Two answers are compared by them.
struct Seen: Equatable {
  /// The response headers; nil: the call gets no headers.
  var headers: [String]?
  var messages: [[UInt8]] = []
  var code = StatusCode.ok
  var message = ""
  var trailers: [String] = []
}

/// An answer on the wire.
struct WireAnswer {
  var status = "200"
  var fields: [(String, String)]
  var body: [UInt8] = []
  var end = StreamEnd.body
  /// Whether the head ends the stream.
  var endsWithHead = false
}

func pairs(of metadata: Metadata) -> [String] {
  (0..<metadata.count).map { "\(text(metadata.name(at: $0))!): \(text(metadata.value(at: $0))!)" }
}

func metadata(_ pairs: [(String, String)]) -> Metadata {
  let made = Metadata()
  for (name, value) in pairs {
    let (name, value) = (bytes(name), bytes(value))
    #expect(made.add(name.view, value.view) == .ok)
  }
  return made
}

/// Passes an answer to a framing as an attempt does. The body is passed in pieces that end at the offsets
/// `cuts`.
func play(_ answer: WireAnswer, to framing: Framing, cuts: [Int] = []) -> Seen {
  var seen = Seen()
  func ended(_ status: Status) -> Seen {
    status.settleTrailers()
    seen.code = status.code
    seen.message = text(status.message)!
    seen.trailers = pairs(of: status.trailers)
    return seen
  }
  let block = HeaderBlock()
  for (name, value) in [(":status", answer.status)] + answer.fields {
    let (name, value) = (bytes(name), bytes(value))
    if !block.note(name.view, value.view, limit: .max) { block.add(name.view, value.view, limit: .max) }
  }
  #expect(block.finish())
  if let length = answer.fields.first(where: { $0.0 == "content-length" }) { block.length = Int(length.1)! }
  switch framing.responseHeaders(block, endsStream: answer.endsWithHead) {
  case .informational:
    Issue.record("an informational head")
    return seen
  case .ended(let status), .foreign(let status): return ended(status)
  case .headers(let metadata): seen.headers = pairs(of: metadata)
  case .statusInBody: break
  }
  var trailers: Status?
  var failure: Status?
  func take(_ step: consuming BodyStep) {
    var step = step
    while true {
      switch step {
      case .needsMore: return
      case .busy:
        #expect(framing.isBusy)
        step = framing.proceed()
        continue
      case .message(let message, _): seen.messages.append([UInt8](message.view))
      case .trailers(let status): trailers = status
      case .failed(let status): failure = failure ?? status
      }
      return
    }
  }
  var from = 0
  for to in cuts.sorted() + [answer.body.count] where to > from {
    var rest = answer.body[from..<to]
    from = to
    while !rest.isEmpty, failure == nil {
      let (consumed, step) = rest.withUnsafeBytes { framing.decode($0) }
      rest = rest.dropFirst(consumed)
      take(step)
    }
  }
  if failure == nil, framing.hearsEnd, answer.end.isComplete {
    framing.hearsEnd = false
    take(framing.bodyEnds())
  }
  if let failure { return ended(failure) }
  return ended(framing.status(answer.end, trailers: trailers, deadlineHasPassed: false))
}

/// Plays an answer as a whole, byte by byte, split in two at every offset, and in random pieces. Expects
/// equal events each time, and returns them.
func playAnyhow(_ answer: WireAnswer, to framing: () -> Framing) -> Seen {
  let seen = play(answer, to: framing())
  let count = answer.body.count
  #expect(play(answer, to: framing(), cuts: Array(0..<count)) == seen, "byte by byte")
  for cut in 0..<count { #expect(play(answer, to: framing(), cuts: [cut]) == seen, "cut at \(cut)") }
  var random = SplitMix(state: UInt64(count))
  for _ in 0..<20 {
    let cuts = (0..<5).map { _ in Int.random(in: 0...count, using: &random) }
    #expect(play(answer, to: framing(), cuts: cuts) == seen, "cut at \(cuts)")
  }
  return seen
}

/// Makes a request for the tests of framings.
func aRequest(
  _ kind: CallKind = .unary, _ fields: [(String, String)] = [], subtype: String? = nil,
  deadline: UInt64? = nil,
  _ change: (inout CallSettings) -> Void = { _ in }
) -> Request {
  let path = bytes("/a.B/C")
  let request = Request(kind: kind, path: path.view, metadata: metadata(fields), deadline: deadline)!
  if let subtype {
    request.labels = RequestLabels(
      authority: nil, contentType: bytes("application/grpc+\(subtype)\0"), userAgent: nil)
  }
  change(&request.settings)
  return request
}

func someDefaults(_ rpc: RPCProtocol, prefix: String? = nil, mostURLBytes: Int = 8192) -> RequestDefaults {
  RequestDefaults(
    privacy: .tls, authority: bytes("host:1"), userAgent: bytes("penstock/1"), rpc: rpc,
    prefix: prefix.map { bytes($0) }, mostURLBytes: mostURLBytes)
}

/// Returns the header list of a request, one line for each field.
func lines(_ framing: Framing, _ request: Request, _ defaults: RequestDefaults, now: UInt64 = 0) -> [String] {
  let list = FieldList()
  #expect(framing.requestHeaders(request, defaults, now: now, into: list))
  let lines = (0..<list.count).map { "\(text(list.name(at: $0))!): \(text(list.value(at: $0))!)" }
  #expect(list.size == lines.reduce(0) { $0 + $1.utf8.count - 2 + 32 })
  return lines
}

func flatten(_ piece: BodyPiece) -> [UInt8] {
  let out = SendQueue(copies: true)
  #expect(piece.move(from: 0, count: piece.count, into: out))
  return [UInt8](out.bytes.view)
}

/// Returns the bytes that a framing sends for a message; a message that is compressed takes several slices.
/// nil: the message is sent in the headers, or encoding has failed.
func sent(_ message: [UInt8], by framing: Framing) -> [UInt8]? {
  var framed = framing.encode(buffer(message))
  while case .later = framed { framed = framing.encodeNext() }
  if case .piece(let piece) = framed { return flatten(piece) }
  return nil
}

func gzipped(_ bytes: [UInt8]) -> [UInt8] {
  let plain = buffer(bytes)
  let packed = withExtendedLifetime(plain) { Compression.gzip.compress(plain.view) }
  return packed.map { [UInt8]($0.view) } ?? []
}

/// The first value of a name.
func value(_ metadata: Metadata, _ name: String) -> [UInt8]? {
  let name = bytes(name)
  return metadata.index(of: name.view).map { [UInt8](metadata.value(at: $0)) }
}
