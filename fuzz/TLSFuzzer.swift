import CPenstockOpenSSL
import CPenstock
import PenstockChannel
import PenstockWire

@testable import PenstockTransport
@testable import PenstockLoop
@testable import PenstockLink

// Fuzzes the whole client over TLS, with the server of ClientFuzzer.swift behind a real TLS session, which is made for each
// input. The input says which frames the server sends, how they are divided into records, and which records are damaged,
// cut or repeated, or come with key updates, tickets, alerts or the end of the session. The same conditions must hold as in
// cleartext.

/// A self-signed certificate for "localhost" and its key, in PEM form. They are made once for the process.
private struct Identity {
  let certificate: String
  let key: String

  init() {
    let context = EVP_PKEY_CTX_new_id(EVP_PKEY_ED25519, nil)
    var pair: OpaquePointer?
    precondition(EVP_PKEY_keygen_init(context) == 1 && EVP_PKEY_keygen(context, &pair) == 1)
    EVP_PKEY_CTX_free(context)
    let x509 = X509_new()
    let name = X509_get_subject_name(x509)
    precondition(X509_set_version(x509, 2) == 1)
    precondition(ASN1_INTEGER_set(X509_get_serialNumber(x509), 1) == 1)
    precondition(X509_gmtime_adj(X509_getm_notBefore(x509), -86400) != nil)
    precondition(X509_gmtime_adj(X509_getm_notAfter(x509), 864000) != nil)
    precondition(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, "localhost", -1, -1, 0) == 1)
    precondition(X509_set_issuer_name(x509, name) == 1 && X509_set_pubkey(x509, pair) == 1)
    let names = X509V3_EXT_conf_nid(nil, nil, NID_subject_alt_name, "DNS:localhost")
    precondition(X509_add_ext(x509, names, -1) == 1 && X509_sign(x509, pair, nil) > 0)
    X509_EXTENSION_free(names)
    certificate = Identity.text { PEM_write_bio_X509($0, x509) }
    key = Identity.text { PEM_write_bio_PrivateKey($0, pair, nil, nil, 0, nil, nil) }
    X509_free(x509)
    EVP_PKEY_free(pair)
  }

  private static func text(_ write: (OpaquePointer?) -> CInt) -> String {
    let bio = BIO_new(BIO_s_mem())
    precondition(write(bio) == 1)
    var start: UnsafeMutablePointer<CChar>?
    let count = Int(penstock_bio_memory(bio, &start))
    defer { BIO_free(bio) }
    return String(decoding: UnsafeRawBufferPointer(start: start, count: count), as: UTF8.self)
  }
}

private struct Setting {
  let context: TLSContext
  let option: String

  init() {
    let identity = Identity()
    var options = TLSOptions()
    options.certificateChain = .pem(Setting.buffer(identity.certificate))
    options.privateKey = .pem(Setting.buffer(identity.key))
    guard case .made(let context) = TLSContext.make(role: .server, options: options) else {
      preconditionFailure("no context")
    }
    self.context = context
    let lines = identity.certificate.split(separator: "\n").joined(separator: "\\n")
    option = "{\"roots_pem\": \"\(lines)\\n\", \"server_name\": \"localhost\"}"
  }

  private static func buffer(_ text: String) -> ByteBuffer {
    var text = text
    return text.withUTF8 { ByteBuffer(copying: ByteView($0))! }
  }
}

nonisolated(unsafe) private let setting = Setting()

/// The server's end of a TLS session.
final class Seal {
  private let engine: TLSEngine
  /// The TLS bytes to be sent: whole records, before steps of the input change them.
  private var sealed: [UInt8] = []

  /// Makes the session, and does the handshake with the client.
  init(_ input: inout Input, _ server: Server, _ turn: () -> Void) {
    engine = TLSEngine.make(setting.context, host: nil)!
    let style = input.byte()
    if style & 1 != 0 { _ = SSL_ctrl(engine.ssl, SSL_CTRL_SET_MAX_PROTO_VERSION, Int(TLS1_2_VERSION), nil) }
    server.seal = self
    for _ in 0..<12 {
      turn()
      server.drain()
      let progress = engine.handshake()
      precondition(progress != .failed, "the handshake fails")
      server.flush()
      if progress == .done { break }
    }
    turn()
    precondition(engine.version != nil && engine.handshake() == .done, "the handshake does not end")
  }

  /// Gives bytes of the client to the TLS engine, which may have to answer. The application data in them is discarded.
  func take(_ bytes: ArraySlice<UInt8>) {
    _ = bytes.withUnsafeBytes { engine.input.append($0) }
    withUnsafeTemporaryAllocation(byteCount: 16384, alignment: 1) {
      while case .bytes = engine.read(into: $0) {}
    }
    collect()
  }

  private func collect() {
    sealed += engine.output.view
    engine.output.consume(engine.output.count)
  }

  private func write(_ plaintext: ArraySlice<UInt8>) {
    _ = plaintext.withUnsafeBytes { engine.write($0) }
    collect()
  }

  /// Encrypts `plaintext`, and gives all TLS bytes that wait to be sent, those of `plaintext` last.
  func records(_ plaintext: [UInt8]) -> [UInt8] {
    write(plaintext[...])
    defer { sealed.removeAll(keepingCapacity: true) }
    return sealed
  }

  /// Reads a byte of the input. If the byte asks for a step of TLS, makes that step. False: the byte asks for
  /// none, so a step of frames follows.
  func step(_ input: inout Input, _ server: Server) -> Bool {
    guard input.byte() & 3 == 3 else { return false }
    switch input.byte() % 12 {
    case 0:
      // The plain bytes become records of `size` bytes; the last record has the rest.
      let size = Int(input.byte()) + 1
      var rest = server.out[...]
      for _ in 0..<Int(input.byte()) where rest.count > size {
        write(rest.prefix(size))
        rest = rest.dropFirst(size)
      }
      write(rest)
      server.out.removeAll(keepingCapacity: true)
    case 1: if version13 { for _ in 0...Int(input.byte() & 15) { engine.updateKeys() } }
    case 2: if version13 { for _ in 0...Int(input.byte() & 15) { engine.sendTicket() } }
    case 3:
      write(server.out[...])
      server.out.removeAll(keepingCapacity: true)
      engine.close()
    case 4:
      // Flips a bit, counted from the end, because the latest record is there.
      let at = sealed.count - 1 - Int(input.byte())
      let bit = input.byte()
      if at >= 0 { sealed[at] ^= 1 << (bit & 7) }
    case 5: sealed.removeLast(min(sealed.count, Int(input.byte())))
    case 6: sealed += sealed.suffix(Int(input.byte()))
    case 7: sealed += [21, 3, 3, 0, 2, input.byte(), input.byte()]
    case 8:
      let type = input.byte()
      let claimed = input.byte()
      sealed += [type, 3, 3, claimed >> 7, claimed & 127] + input.take(Int(input.byte()))
    case 9: sealed += input.take(Int(input.byte()))
    case 10:
      // Sends a part of the records by itself, and keeps the rest.
      collect()
      let rest = sealed.dropFirst(Int(input.byte()))
      sealed.removeLast(rest.count)
      let waiting = server.out
      server.out.removeAll(keepingCapacity: true)
      server.flush()
      fixture.turn()
      sealed = rest + sealed
      server.out = waiting
    default:
      // Sends application data that is no frame: a byte of the input, repeated.
      write([UInt8](repeating: input.byte(), count: Int(input.byte()) + 1)[...])
    }
    collect()
    return true
  }

  private var version13: Bool { SSL_version(engine.ssl) == TLS1_3_VERSION }
}

func fuzzTLS(_ bytes: ByteView) { play(bytes, setting.option, sealed: true) }
