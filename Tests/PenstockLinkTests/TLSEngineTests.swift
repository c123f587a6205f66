import CPenstockOpenSSL
import PenstockWire
import PenstockTestSupport
import PenstockTestCertificates
import Testing

@testable import PenstockLink

/// Tests of two TLSEngines, a client and a server, connected in memory.
@Suite struct TLSEngineTests {
  let certificates = Certificates.shared

  struct Pair {
    let client: TLSEngine
    let server: TLSEngine

    /// Moves records between the two sides in parts of `step` bytes, until neither side has more to send.
    func shake(step: Int = .max) -> (client: TLSEngine.Progress, server: TLSEngine.Progress) {
      var left = client.handshake()
      var right = TLSEngine.Progress.needsMore
      for _ in 0..<100_000 {
        if client.output.isEmpty && server.output.isEmpty { break }
        if move(client.output, server.input, step) { right = server.handshake() }
        if move(server.output, client.input, step) { left = client.handshake() }
      }
      // In TLS 1.3 the server checks the client's certificate after the client has finished its handshake. So
      // a refusal arrives with the first read.
      var scrap = [UInt8](repeating: 0, count: 100)
      if left == .done, scrap.withUnsafeMutableBytes({ client.read(into: $0) }) == .failed { left = .failed }
      return (left, right)
    }

    func move(_ from: ByteBuffer, _ to: ByteBuffer, _ step: Int) -> Bool {
      let part = ByteView(rebasing: from.view.prefix(step))
      if part.isEmpty { return false }
      _ = to.append(part)
      from.consume(part.count)
      return true
    }
  }

  func context(_ role: TLSContext.Role, _ options: TLSOptions) throws -> TLSContext {
    switch TLSContext.make(role: role, options: options) {
    case .made(let context): return context
    case .failed(let failure):
      Issue.record("\(failure.field): \(text(failure.text) ?? "")")
      throw Unexpected()
    }
  }

  struct Unexpected: Error {}

  func pair(_ client: TLSOptions, _ server: TLSOptions, host: String = "localhost") throws -> Pair {
    // A view does not hold its buffer, so `name` has to live until the end of the function.
    let name = bytes(host)
    defer { withExtendedLifetime(name) {} }
    let left = try #require(TLSEngine.make(context(.client, client), host: name.view))
    let right = try #require(TLSEngine.make(context(.server, server), host: nil))
    return Pair(client: left, server: right)
  }

  /// A host name with a dot at its end is equal to the name without the dot (RFC 6066 section 3 sends it
  /// without the dot). An address with a zone is equal to the address without the zone.
  @Test(arguments: ["localhost", "127.0.0.1", "a.test.example", "localhost.", "fe80::1", "fe80::1%eth0"])
  func goodHost(_ host: String) throws {
    let pair = try pair(certificates.client(), certificates.server(), host: host)
    #expect(pair.shake() == (.done, .done))
    #expect(String(cString: pair.client.version!) == "TLSv1.3")
  }

  @Test func byteByByte() throws {
    let pair = try pair(certificates.client(), certificates.server())
    #expect(pair.shake(step: 1) == (.done, .done))
  }

  /// Names and addresses may be mixed; one of them has to fit.
  @Test(arguments: [
    ["localhost"], ["other", "localhost."], ["10.1.2.3", "127.0.0.1"], ["other", "::1", "a.test.example"],
    ["127.0.0.1", "other"],
  ])
  func serverNamesReplaceTheHost(_ names: [String]) throws {
    let options = certificates.client { $0.serverNames = names.map { bytes($0) } }
    let pair = try pair(options, certificates.server(), host: "10.1.2.3")
    #expect(pair.shake() == (.done, .done))
  }

  @Test func noneOfSeveralServerNamesFits() throws {
    let options = certificates.client { $0.serverNames = [bytes("a"), bytes("10.1.2.3"), bytes("c.")] }
    let pair = try pair(options, certificates.server(), host: "localhost")
    #expect(pair.shake().client == .failed)
    #expect(
      text(pair.client.failure)
        == "certificate verify failed: hostname mismatch, expected host a, 10.1.2.3 or c; "
        + "subject CN=server, issuer CN=root")
  }

  @Test func largeWritesFillRecords() throws {
    let pair = try pair(certificates.client(), certificates.server())
    _ = pair.shake()
    let sent = [UInt8]((0..<1_000_000).map { UInt8(truncatingIfNeeded: $0 &* 31) })
    #expect(sent.withUnsafeBytes { pair.client.write($0) })
    // The records have 16 KiB of plaintext each, and 22 bytes of overhead.
    #expect(pair.client.output.count < sent.count + 63 * 22 + 1)
    _ = pair.move(pair.client.output, pair.server.input, .max)
    var received: [UInt8] = []
    var place = [UInt8](repeating: 0, count: 65536)
    while case .bytes(let n) = place.withUnsafeMutableBytes({ pair.server.read(into: $0) }) {
      received += place[0..<n]
    }
    #expect(received == sent)
    #expect(place.withUnsafeMutableBytes { pair.server.read(into: $0) } == .needsMore)
    pair.client.close()
    _ = pair.move(pair.client.output, pair.server.input, .max)
    #expect(place.withUnsafeMutableBytes { pair.server.read(into: $0) } == .closed)
  }

  /// Nothing is encrypted, and no close_notify is sent, before the handshake is done or after it has failed.
  @Test func writesNothingBeforeTheHandshakeAndAfterAFailure() throws {
    let plain: [UInt8] = [1, 2, 3]
    func writes(_ engine: TLSEngine) -> Bool { plain.withUnsafeBytes { engine.write($0) } }
    let pair = try pair(certificates.client(), certificates.server(), host: "other")
    #expect(!writes(pair.client) && pair.client.output.isEmpty)
    pair.client.close()
    #expect(pair.client.output.isEmpty && pair.client.failure == nil)
    #expect(pair.shake().client == .failed)
    #expect(!writes(pair.client))
    pair.client.close()
    #expect(pair.client.output.isEmpty)
    let good = try self.pair(certificates.client(), certificates.server())
    #expect(good.shake() == (.done, .done))
    #expect(good.client.write(ByteView(start: nil, count: 0)) && good.client.output.isEmpty)
    #expect(writes(good.client) && !good.client.output.isEmpty)
  }

  /// OpenSSL has one error queue for each thread. An error that another user of OpenSSL has left in the queue
  /// must not count as a failure of this connection.
  @Test func whatOthersHaveFailedAtIsNotOurs() throws {
    let pair = try pair(certificates.client(), certificates.server())
    _ = pair.shake()
    let sent = [UInt8](repeating: 7, count: 100)
    var place = [UInt8](repeating: 0, count: 200)
    func fail() { #expect(BIO_new_file("/nonexistent", "r") == nil) }
    fail()
    #expect(sent.withUnsafeBytes { pair.server.write($0) })
    // Only a part of a record has arrived.
    _ = pair.move(pair.server.output, pair.client.input, 50)
    fail()
    #expect(place.withUnsafeMutableBytes { pair.client.read(into: $0) } == .needsMore)
    fail()
    #expect(place.withUnsafeMutableBytes { pair.client.read(into: $0) } == .needsMore)
    _ = pair.move(pair.server.output, pair.client.input, .max)
    #expect(place.withUnsafeMutableBytes { pair.client.read(into: $0) } == .bytes(100))
    #expect(place.withUnsafeMutableBytes { pair.client.read(into: $0) } == .needsMore)
    pair.server.close()
    _ = pair.move(pair.server.output, pair.client.input, .max)
    fail()
    #expect(place.withUnsafeMutableBytes { pair.client.read(into: $0) } == .closed)
    sendNonsense(to: pair.server)
    fail()
    #expect(place.withUnsafeMutableBytes { pair.server.read(into: $0) } == .failed)
    #expect(text(pair.server.failure) == "TLS failed: decryption failed or bad record mac")
    pair.client.close()
    fail()
    #expect(sent.withUnsafeBytes { !pair.client.write($0) })
    #expect(text(pair.client.failure) == "TLS failed: protocol is shutdown")
  }

  /// Passes a record to the engine `to` that no engine has made.
  func sendNonsense(to: TLSEngine) {
    let record = [0x17, 3, 3, 0, 32] + [UInt8](repeating: 7, count: 32)
    _ = record.withUnsafeBytes { to.input.append($0) }
  }

  @Test func alertsAfterTheHandshake() throws {
    let pair = try pair(certificates.client(), certificates.server())
    _ = pair.shake()
    sendNonsense(to: pair.server)
    var place = [UInt8](repeating: 0, count: 200)
    #expect(place.withUnsafeMutableBytes { pair.server.read(into: $0) } == .failed)
    _ = pair.move(pair.server.output, pair.client.input, .max)
    #expect(BIO_new_file("/nonexistent", "r") == nil)
    #expect(place.withUnsafeMutableBytes { pair.client.read(into: $0) } == .failed)
    #expect(text(pair.client.failure) == "the peer refused with a TLS alert: bad record mac")
  }

  /// A session ticket arrives in several records, the last of which is invalid. The engine must fail, and not
  /// wait for more.
  @Test func nonsenseWithinAHandshakeMessage() throws {
    let pair = try pair(certificates.client(), certificates.server())
    _ = pair.shake()
    let (ssl, data) = (pair.server.ssl, [UInt8](repeating: 7, count: 2000))
    #expect(SSL_ctrl(ssl, SSL_CTRL_SET_MAX_SEND_FRAGMENT, 512, nil) == 1)
    #expect(SSL_SESSION_set1_ticket_appdata(SSL_get_session(ssl), data, data.count) == 1)
    #expect(SSL_new_session_ticket(ssl) == 1 && SSL_do_handshake(ssl) == 1)
    #expect(pair.server.output.count > 2000)
    var place = [UInt8](repeating: 0, count: 200)
    // Moves two records of 512 bytes, and a part of the third record.
    _ = pair.move(pair.server.output, pair.client.input, 1100)
    #expect(place.withUnsafeMutableBytes { pair.client.read(into: $0) } == .needsMore)
    let rest = [UInt8](repeating: 9, count: 600)
    _ = rest.withUnsafeBytes { pair.client.input.append($0) }
    #expect(BIO_new_file("/nonexistent", "r") == nil)
    #expect(place.withUnsafeMutableBytes { pair.client.read(into: $0) } == .failed)
    #expect(text(pair.client.failure) == "TLS failed: decryption failed or bad record mac")
  }

  @Test func mutual() throws {
    let options = certificates.client {
      $0.certificateChain = certificates.file("client.pem")
      $0.privateKey = certificates.file("client.key")
    }
    let strict = certificates.server {
      $0.requiresClientCertificate = true
      $0.roots = certificates.file("root.pem")
    }
    let pair = try pair(options, strict)
    #expect(pair.shake() == (.done, .done))
  }

  @Test func mutualWithoutOrWithAWrongCertificate() throws {
    let strict = certificates.server {
      $0.requiresClientCertificate = true
      $0.roots = certificates.file("root.pem")
    }
    let none = try pair(certificates.client(), strict)
    #expect(none.shake() == (.failed, .failed))
    #expect(
      text(none.client.failure)
        == "the peer refused with a TLS alert: certificate required; "
        + "it asked for a client certificate, and the channel has none")
    let options = certificates.client {
      $0.certificateChain = certificates.file("stranger.pem")
      $0.privateKey = certificates.file("stranger.key")
    }
    let wrong = try pair(options, strict)
    #expect(wrong.shake() == (.failed, .failed))
    #expect(
      text(wrong.client.failure)
        == "the peer refused with a TLS alert: unknown CA; "
        + "it asked for a client certificate, and may not accept the channel's")
  }

  struct Bad: CustomTestStringConvertible {
    let server: String
    let host: String
    let words: String
    /// The common names of the certificate's subject and issuer.
    var names: (subject: String, issuer: String)?
    var testDescription: String { words }
  }

  @Test(arguments: [
    Bad(
      server: "server", host: "elsewhere",
      words: "certificate verify failed: hostname mismatch, expected host elsewhere"),
    Bad(
      server: "server", host: "10.1.2.3",
      words: "certificate verify failed: IP address mismatch, expected host 10.1.2.3"),
    Bad(
      server: "selfsigned", host: "localhost",
      words: "certificate verify failed: self-signed certificate, expected host localhost",
      names: ("localhost", "localhost")),
    Bad(
      server: "expired", host: "localhost",
      words: "certificate verify failed: certificate has expired, expected host localhost"),
    Bad(
      server: "stranger", host: "stranger",
      words: "certificate verify failed: unable to get local issuer certificate, expected host stranger",
      names: ("stranger", "otherroot")),
    // RFC 9525 section 6.3: the common name (CN) of a certificate is not a name to verify, even if the
    // certificate has no other name. A "*" stands for a whole label only.
    Bad(
      server: "cn", host: "localhost",
      words: "certificate verify failed: hostname mismatch, expected host localhost",
      names: ("localhost", "root")),
    Bad(
      server: "cnbesideip", host: "localhost",
      words: "certificate verify failed: hostname mismatch, expected host localhost",
      names: ("localhost", "root")),
    Bad(
      server: "partial", host: "foo.test.example",
      words: "certificate verify failed: hostname mismatch, expected host foo.test.example"),
    Bad(
      server: "server", host: "a.b.test.example",
      words: "certificate verify failed: hostname mismatch, expected host a.b.test.example"),
  ])
  func refused(_ bad: Bad) throws {
    let pair = try pair(certificates.client(), certificates.server(bad.server), host: bad.host)
    #expect(pair.shake().client == .failed)
    let names = bad.names ?? (bad.server, "root")
    #expect(
      text(pair.client.failure) == bad.words + "; subject CN=\(names.subject), issuer CN=\(names.issuer)")
    #expect(pair.server.handshake() == .failed)
    #expect(text(pair.server.failure)?.hasPrefix("the peer refused with a TLS alert: ") == true)
  }

  @Test(arguments: [("cnbesideip", "127.0.0.1"), ("underscore", "a_b.test.example")])
  func otherNames(_ server: String, _ host: String) throws {
    #expect(
      try pair(certificates.client(), certificates.server(server), host: host).shake() == (.done, .done))
  }

  /// RFC 9113 appendix A: TLS 1.2 may use only ciphers with forward secrecy and authenticated encryption.
  @Test(arguments: [
    ("ECDHE-ECDSA-AES128-GCM-SHA256", true), ("ECDHE-ECDSA-CHACHA20-POLY1305", true),
    ("ECDHE-ECDSA-AES128-SHA256", false), ("ECDHE-ECDSA-AES256-SHA", false),
    ("ECDHE-ECDSA-AES128-CCM", false),
  ])
  func ciphersOfTLS12(_ cipher: String, _ isGood: Bool) throws {
    let server = try context(.server, certificates.server())
    #expect(SSL_CTX_ctrl(server.handle, SSL_CTRL_SET_MAX_PROTO_VERSION, Int(TLS1_2_VERSION), nil) == 1)
    #expect(SSL_CTX_set_cipher_list(server.handle, cipher) == 1)
    let name = bytes("localhost")
    let pair = Pair(
      client: try #require(TLSEngine.make(context(.client, certificates.client()), host: name.view)),
      server: try #require(TLSEngine.make(server, host: nil)))
    #expect(pair.shake() == (isGood ? (.done, .done) : (.failed, .failed)))
    if isGood { #expect(pair.client.cipher.map { String(cString: $0) } == cipher) }
  }

  @Test func verificationCanBeTurnedOff() throws {
    let options = certificates.client { $0.verifiesPeer = false }
    let pair = try pair(options, certificates.server("selfsigned"), host: "whatever")
    #expect(pair.shake() == (.done, .done))
  }

  @Test func noALPN() throws {
    let server = try pair(certificates.client(), certificates.server { $0.usesALPN = false })
    #expect(server.shake().client == .failed)
    #expect(text(server.client.failure) == "the server did not choose HTTP/2 (no ALPN \"h2\")")
    let client = try pair(certificates.client { $0.usesALPN = false }, certificates.server())
    #expect(client.shake().server == .failed)
    #expect(text(client.server.failure) == "the client did not offer HTTP/2 (no ALPN \"h2\")")
  }

  @Test(arguments: [
    (
      "HTTP/1.1 400 Bad Request\r\nx: y\r\n",
      "the peer does not speak TLS: it answered \"HTTP/1.1 400 Bad Request\""
    ),
    (
      "\u{0}\u{0}\u{0}\u{4}\u{0}\u{0}\u{0}\u{0}\u{0}",
      "the peer does not speak TLS: it answered in cleartext HTTP/2"
    ),
    ("SSH-2.0-x\n", "the peer does not speak TLS: it sent \"SSH-2.0-x.\""),
  ])
  func notTLS(_ answer: String, _ words: String) throws {
    let engine = try #require(TLSEngine.make(context(.client, certificates.client()), host: nil))
    #expect(engine.handshake() == .needsMore)
    let answer = bytes(answer)
    _ = engine.input.append(answer.view)
    #expect(engine.handshake() == .failed)
    #expect(text(engine.failure) == words)
  }

  /// OpenSSL's client accepts any number of HelloRequest messages before the server's answer. So the engine
  /// limits the bytes of a handshake.
  @Test func aHandshakeIsBounded() throws {
    let engine = try #require(TLSEngine.make(context(.client, certificates.client()), host: nil))
    #expect(engine.handshake() == .needsMore)
    func say(_ helloRequests: Int) -> TLSEngine.Progress {
      let size = 4 * helloRequests
      let record = [22, 3, 3, UInt8(size >> 8), UInt8(size & 255)] + [UInt8](repeating: 0, count: size)
      _ = record.withUnsafeBytes { engine.input.append($0) }
      return engine.handshake()
    }
    for _ in 0..<63 { #expect(say(4096) == .needsMore) }
    // With these bytes the handshake has reached exactly 1 MiB.
    #expect(say(4016) == .needsMore && engine.input.isEmpty)
    #expect(say(1) == .failed)
    #expect(text(engine.failure) == "TLS handshake failed: over 1 MiB long")
  }

  @Test func setupMistakesNameTheirField() {
    func failure(_ options: TLSOptions, _ role: TLSContext.Role = .client) -> String {
      guard case .failed(let failure) = TLSContext.make(role: role, options: options) else { return "made" }
      return "\(failure.field): \(text(failure.text) ?? "")"
    }
    #expect(
      failure(certificates.client { $0.roots = .pem(bytes("nothing")) })
        == "roots_pem: no certificate in PEM form")
    #expect(
      failure(certificates.client { $0.roots = .file(bytes("/does/not/exist")) })
        == "roots_file: cannot read the file: No such file or directory")
    #expect(
      failure(
        certificates.client {
          $0.roots = .pem(bytes("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
        }
      )
      .hasPrefix("roots_pem: certificate 1 does not parse"))
    #expect(
      failure(certificates.client { $0.privateKey = .pem(bytes("x")) })
        == "private_key: a key without a certificate chain")
    let mismatch = certificates.client {
      $0.certificateChain = certificates.file("client.pem")
      $0.privateKey = certificates.file("server.key")
    }
    #expect(
      failure(mismatch).hasPrefix("private_key_file: the private key does not belong to the certificate"))
    #expect(failure(TLSOptions(), .server) == "certificate_chain: a server needs one")
  }

  @Test func rootsOfTheSystem() {
    // On a machine without roots the test passes, too, if the error text says so.
    switch TLSContext.make(role: .client, options: TLSOptions()) {
    case .made: break
    case .failed(let failure): #expect(text(failure.text)?.hasPrefix("this system has no roots") == true)
    }
  }
}
