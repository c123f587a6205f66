import PenstockCall
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockClient
@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop
@testable import PenstockTransport

/// Tests of gRPC-Web and Connect on HTTP/2, with peers that end their answers late or send more than an
/// answer.
@Suite(.timeLimit(.minutes(15))) struct ProtocolFaultTests {
  func client(_ server: RawServer, _ rpc: RPCProtocol) -> TestClient {
    TestClient(server.target) {
      $0.rpc = rpc
      $0.http = .http2
    }!
  }

  static func head(_ id: Int32, _ status: String, _ type: String) -> Frame {
    .headers(id, [(":status", status), ("content-type", type)])
  }

  /// Some proxies add HTTP trailers. The call ends with the status in the body, whether it was read before or
  /// after the trailers arrived.
  @Test(arguments: [RPCProtocol.grpcWeb, .connect], [false, true])
  func trailersBehindTheStatusInTheBody(_ rpc: RPCProtocol, _ waits: Bool) {
    let last =
      rpc == .connect
      ? frame(2, "{\"metadata\": {\"a\": [\"1\"]}}") : frame(0x80, "grpc-status: 0\r\na: 1\r\n")
    let type = rpc == .connect ? "application/connect+proto" : "application/grpc-web+proto"
    let server = RawServer { peer in
      peer.begin()
      let id = peer.request()
      peer.send(ProtocolFaultTests.head(id, "200", type))
      peer.send(Frame(type: 6, stream: 0, payload: [UInt8](repeating: 0, count: 8)))
      _ = peer.frame(6)
      peer.send(.data(id, frame(0, [7]) + last))
      if waits {
        // When the client has answered a PING, it has read all earlier bytes.
        for _ in 0..<3 {
          peer.send(Frame(type: 6, stream: 0, payload: [UInt8](repeating: 0, count: 8)))
          _ = peer.frame(6)
        }
      }
      peer.send(.headers(id, [("server-timing", "a;dur=1")], end: true))
      peer.waitForEnd()
    }
    defer { server.stop() }
    let client = client(server, rpc)
    let call = client.make("/a.B/C", .clientStream)
    call.open()
    #expect(call.send(buffer([1])) == .ok)
    let answer = Answer(call.finish().1!)
    #expect(
      answer.code == .ok && answer.message == [7] && answer.trailer("a") == Array("1".utf8), "\(answer.words)"
    )
    #expect(server.complaints == [])
  }

  /// If the body of an error is over the limit, the call ends with RESOURCE_EXHAUSTED. It does not wait for the end of the
  /// body, which may never come.
  @Test(arguments: [nil, 20_000, 30_000])
  func errorWithoutEnd(_ length: Int?) {
    let server = RawServer { peer in
      peer.begin()
      let id = peer.request()
      var fields = [(":status", "403"), ("content-type", "application/json")]
      if let length { fields.append(("content-length", "\(length)")) }
      peer.send(.headers(id, fields))
      for count in [10_000, 9_999] { peer.send(.data(id, [UInt8](repeating: 0x20, count: count))) }
      peer.expect(peer.frame(3) != nil, "no RST_STREAM")
      peer.waitForEnd()
    }
    defer { server.stop() }
    let answer = client(server, .connect).unary("/a.B/C", [1]) { $0.maxReceiveBytes = 10 }
    #expect(answer.code == .resourceExhausted, "\(answer.words)")
  }

  /// If the server has begun to answer, it has processed the request, even if it then resets the stream with
  /// REFUSED_STREAM.
  @Test func refusedBehindAnError() {
    let server = RawServer { peer in
      peer.begin()
      let id = peer.request()
      peer.send(ProtocolFaultTests.head(id, "403", "application/json"))
      // When the client has answered a PING, it has read all earlier bytes.
      peer.send(Frame(type: 6, stream: 0, payload: [UInt8](repeating: 0, count: 8)))
      _ = peer.frame(6)
      peer.send(.reset(id, 7))
      let again = peer.readFrame()
      if let again, again.type == 1 {
        peer.send(ProtocolFaultTests.head(again.stream, "200", "application/proto"))
        peer.send(.data(again.stream, [7], end: true))
      }
      peer.waitForEnd()
    }
    defer { server.stop() }
    let answer = client(server, .connect).unary("/a.B/C", [1])
    #expect(answer.code == .permissionDenied, "\(answer.words)")
  }

  /// A request without a message must not be sent as a request with an empty body, because the server would
  /// read that as an empty message.
  @Test(arguments: [Idempotency.unknown, .noSideEffects])
  func noRequestMessage(_ idempotency: Idempotency) {
    let server = RawServer { peer in
      peer.begin()
      let id = peer.request()
      peer.send(ProtocolFaultTests.head(id, "200", "application/proto"), .data(id, [7], end: true))
      peer.waitForEnd()
    }
    defer { server.stop() }
    let client = client(server, .connect)
    let call = client.make("/a.B/C", .unary) { $0.idempotency = idempotency }
    call.open()
    #expect(call.halfClose() == .ok)
    let answer = Answer(call.finish().1!)
    #expect(answer.code == .internal && answer.words == "no request message in a call that needs one")
    #expect(server.connections == 0)
  }
}
