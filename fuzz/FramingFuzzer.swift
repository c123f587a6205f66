import PenstockCall
import PenstockWire

@testable import PenstockFraming
@testable import PenstockTransport
@testable import PenstockHTTP

// Fuzzes the decoders of gRPC, gRPC-Web and Connect with answers of any bytes. The result must not depend on
// the size of the pieces in which an answer arrives, and no message may be over the limit.

private let limit = 20_000

/// The numbers by which two results are compared. They count everything that a call receives from an answer.
private struct Sum: Equatable {
  var messages = 0
  var bytes = 0
  var code: Int32 = -1
  var trailers = 0

  mutating func add(_ message: ByteBuffer) {
    precondition(message.count <= limit)
    messages += 1
    bytes += message.count
  }

  mutating func add(_ status: Status) {
    status.settleTrailers()
    code = status.code.rawValue
    trailers = status.trailers.listSize + status.detailCount + status.message.count
  }
}

private func framing(_ kind: UInt8) -> Framing {
  let path = ("/a.B/C" as StaticString).bytes
  let request = Request(kind: kind % 5 == 3 ? .unary : .bidi, path: path, metadata: .none, deadline: nil)!
  request.settings.maxReceiveBytes = limit
  let rpc: RPCProtocol = [.grpc, .grpcWeb, .grpcWebText, .connect, .connect][Int(kind % 5)]
  let defaults = RequestDefaults(
    privacy: .tls, authority: ByteBuffer(), userAgent: ByteBuffer(), rpc: rpc)
  return Framings().make(request, defaults)
}

private func type(_ kind: UInt8, isError: Bool) -> StaticString {
  switch kind % 5 {
  case 0: "application/grpc"
  case 1: "application/grpc-web"
  case 2: "application/grpc-web-text"
  case 3: isError ? "application/json" : "application/proto"
  default: "application/connect+proto"
  }
}

private func play(_ kind: UInt8, _ flags: UInt8, _ body: ByteView, piece: Int) -> Sum {
  let framing = framing(kind)
  let block = HeaderBlock()
  func add(_ name: StaticString, _ value: StaticString) { block.add(name.bytes, value.bytes, limit: .max) }
  let isError = flags & 1 != 0
  add(":status", isError ? "503" : "200")
  add("content-type", type(kind, isError: isError))
  if flags & 2 != 0 {
    for name in ["grpc-encoding" as StaticString, "content-encoding", "connect-content-encoding"] {
      add(name, "gzip")
    }
  }
  if flags & 4 != 0 { block.length = body.count }
  precondition(block.finish())
  var sum = Sum()
  switch framing.responseHeaders(block, endsStream: false) {
  case .informational: preconditionFailure("an informational head")
  case .ended(let status), .foreign(let status):
    sum.add(status)
    return sum
  case .headers, .statusInBody: break
  }
  var trailers: Status?
  var failure: Status?
  func take(_ step: consuming BodyStep) {
    var step = step
    while true {
      switch step {
      case .needsMore: return
      case .busy:
        step = framing.proceed()
        continue
      case .message(let message, _): sum.add(message)
      case .trailers(let status): trailers = status
      case .failed(let status): failure = failure ?? status
      }
      return
    }
  }
  var from = 0
  while from < body.count, failure == nil {
    let part = ByteView(rebasing: body[from..<min(body.count, from + piece)])
    let (consumed, step) = framing.decode(part)
    precondition(consumed <= part.count)
    from += consumed
    take(step)
  }
  let end: StreamEnd = flags & 8 != 0 ? .body : .lost(ByteBuffer())
  if failure == nil, framing.hearsEnd, end.isComplete { take(framing.bodyEnds()) }
  sum.add(failure ?? framing.status(end, trailers: trailers, deadlineHasPassed: false))
  precondition(sum.code >= 0 && sum.code <= 16)
  return sum
}

/// Fuzzes one answer. The first byte of the input selects the protocol, the second byte the head and the end
/// of the answer, and the third byte the size of the pieces. The rest is the body.
func fuzzFramings(_ all: ByteView) {
  guard all.count >= 3 else { return }
  let body = ByteView(rebasing: all[3...])
  let whole = play(all[0], all[1], body, piece: .max >> 1)
  precondition(play(all[0], all[1], body, piece: Int(all[2]) + 1) == whole)
}

/// Fuzzes the JSON of Connect. An error from the JSON, encoded as a google.rpc.Status, must have the same
/// code and details when it is decoded.
func fuzzConnectJSON(_ input: ByteView) {
  let trailers = Metadata()
  if case .status(let end) = ConnectJSON.end(input, trailers) { precondition(end.code.rawValue <= 16) }
  for index in 0..<trailers.count { precondition(HeaderRules.isFieldValue(trailers.value(at: index))) }
  let status = Status(.unavailable)
  guard ConnectJSON.read(error: input, into: status) else { return }
  precondition(status.code != .ok && UTF8Repair.isValid(status.message) && !status.detailsAreMalformed)
  let encoded = ByteBuffer()
  precondition(status.encodeDetails(into: encoded))
  let again = Status(status.code)
  again.takeDetails(encoded.view)
  precondition(again.detailCount == status.detailCount)
}
