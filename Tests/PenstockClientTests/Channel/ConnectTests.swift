import PenstockCall
import PenstockWire
import PenstockTestSupport
import PenstockTestCertificates
import Testing

@testable import PenstockClient
@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop
@testable import PenstockTransport

/// Tests of channels that connect or fail to connect: addresses, silent peers, TLS.
@Suite(.timeLimit(.minutes(15))) struct ConnectTests {
  let certificates = Certificates.shared

  @Test func addressesInTurn() throws {
    let server = RawServer(ChannelTests.echo)
    defer { server.stop() }
    let client = try #require(TestClient("ipv4:127.0.0.1:1,127.0.0.1:\(server.port)"))
    #expect(client.unary("/a.B/C", [1]).message == [1])
    let none = try #require(TestClient("ipv4:127.0.0.1:1,127.0.0.1:2"))
    #expect(
      none.unary("/a.B/C", [1]).cause
        == "could not connect to ipv4:127.0.0.1:1,127.0.0.1:2: 127.0.0.1:1: Connection refused; 127.0.0.1:2: Connection refused"
    )
  }

  @Test func unixSocketThatIsNotThere() throws {
    let client = try #require(TestClient("unix:/tmp/penstock-no-such-socket"))
    let answer = client.unary("/a.B/C", [1])
    #expect(answer.code == .unavailable)
    #expect(
      answer.cause
        == "could not connect to unix:/tmp/penstock-no-such-socket: No such file or directory"
    )
  }

  @Test func aPeerThatSaysNothing() throws {
    let server = RawServer { $0.waitForEnd() }
    defer { server.stop() }
    let client = try #require(TestClient(server.target) { $0.connectTimeout = 200_000_000 })
    let early = client.unary("/a.B/C", [1]) { $0.deadline = 50_000_000 }
    #expect(early.code == .deadlineExceeded)
    let late = client.unary("/a.B/C", [1])
    #expect(late.code == .unavailable)
    #expect(
      late.cause
        == "could not connect to \(server.target): connect timeout: the peer does not answer with HTTP/2"
    )
  }

  // MARK: TLS

  @Test func overTLS() throws {
    let server = RawServer(tls: serverTLS(), ChannelTests.echo)
    defer { server.stop() }
    let client = try #require(TestClient(server.target) { $0.tls = certificates.client() })
    let message = [UInt8](repeating: 5, count: 16000)
    for _ in 0..<5 { #expect((client.unary("/a.B/C", message).message == message) == true) }
    #expect(server.connections == 1)
  }

  @Test func refusedByTLS() throws {
    let server = RawServer(tls: serverTLS(), ChannelTests.echo)
    defer { server.stop() }
    let client = try #require(
      TestClient(server.target) { $0.tls = certificates.client { $0.serverNames = [bytes("other")] } })
    #expect(
      client.unary("/a.B/C", [1]).cause
        == "could not connect to \(server.target): "
        + "certificate verify failed: hostname mismatch, expected host other; subject CN=server, issuer CN=root"
    )
    let strict = RawServer(
      tls: serverTLS {
        $0.requiresClientCertificate = true
        $0.roots = certificates.file("root.pem")
      }, ChannelTests.echo)
    defer { strict.stop() }
    let bare = try #require(TestClient(strict.target) { $0.tls = certificates.client() })
    #expect(
      bare.unary("/a.B/C", [1]).cause
        == "could not connect to \(strict.target): the peer refused with a TLS alert: certificate required; "
        + "it asked for a client certificate, and the channel has none"
    )
    let good = try #require(
      TestClient(strict.target) {
        $0.tls = certificates.client {
          $0.certificateChain = certificates.file("client.pem")
          $0.privateKey = certificates.file("client.key")
        }
      })
    #expect(good.unary("/a.B/C", [1]).code == .ok)
  }

  @Test func tlsToCleartext() throws {
    let server = RawServer(ChannelTests.echo)
    defer { server.stop() }
    let client = try #require(TestClient(server.target) { $0.tls = certificates.client() })
    let answer = client.unary("/a.B/C", [1])
    #expect(answer.code == .unavailable)
    #expect(
      answer.cause
        == "could not connect to \(server.target): connection closed by peer during the TLS handshake; "
        + "it sent nothing, and may not speak TLS"
    )
  }
}
