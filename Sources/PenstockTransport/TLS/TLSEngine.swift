import COpenSSL
import CSystem
import PenstockChannel
import PenstockWire

/// TLS of one connection, without I/O: ciphertext goes in and out through two buffers, and OpenSSL reads and writes
/// them through a BIO of our own (its socket BIO raises SIGPIPE). Used by one thread at a time.
///
/// ```
/// handshaking --handshake(): done--> open --peer's close_notify--> closed
///      \------------- any error: failed, `failure` says why ----------/
/// ```
/// After each call, send the bytes in `output`: also after a failure, when it holds the alert for the peer.
public final class TLSEngine {
  public enum Progress: Equatable { case needsMore, done, failed }
  public enum Received: Equatable {
    case bytes(Int)
    case needsMore
    /// The peer has sent close_notify: the connection has ended regularly, and was not cut off.
    case closed
    case failed
  }

  /// Ciphertext from the peer: append to it, or receive into its spare room, then call `handshake` or `read`.
  public let input = ByteBuffer()
  /// Ciphertext for the peer: send it, then `consume`.
  public let output = ByteBuffer()
  /// The reason why TLS has failed; nil: it has not failed.
  public private(set) var failure: ByteBuffer?

  private let context: TLSContext
  let ssl: OpaquePointer
  /// The name that the certificate has to have, followed by a NUL.
  private let expectedName: ByteBuffer?
  /// The first bytes that came, by which a peer that does not speak TLS is recognised.
  private let opening = ByteBuffer()
  private static let openingSize = 64
  private static let fewBytes = 2048
  private var handshakeIsDone = false
  private var handshakeBytes = 0
  /// How many events of TLS's own messages (key updates, tickets, alerts) there were since `takeEvents` was last
  /// called.
  private var events = 0
  /// After this many events `read` returns `needsMore`, even if there is input.
  private static let mostEvents = 256
  private var outOfMemory = false
  /// Whether the server has asked for a client certificate.
  private var wasAsked = false

  private init(_ context: TLSContext, _ ssl: OpaquePointer, expecting name: ByteBuffer?) {
    self.context = context
    self.ssl = ssl
    expectedName = name
  }

  deinit { SSL_free(ssl) }

  /// Makes an engine; nil: no memory, or `TLSContext.reason` has the reason. `host` is the peer that a client expects
  /// (a name or an IP address), unless the options name another.
  @inline(never) @_optimize(size)
  public static func make(_ context: TLSContext, host: ByteView?) -> TLSEngine? {
    ERR_clear_error()
    var name: ByteBuffer?
    if let host = context.serverName?.view ?? host {
      guard let copied = ByteBuffer(copying: HostName.forTLS(host)), copied.append(byte: 0) else {
        return nil
      }
      name = copied
    }
    guard let ssl = SSL_new(context.handle) else { return nil }
    let engine = TLSEngine(context, ssl, expecting: context.role == .client ? name : nil)
    guard let bio = BIO_new(context.bioMethod) else { return nil }
    // The function `of` reads this pointer.
    BIO_set_data(bio, Unmanaged.passUnretained(engine).toOpaque())
    BIO_set_init(bio, 1)
    SSL_set_bio(ssl, bio, bio)
    switch context.role {
    case .client:
      guard engine.expect() else { return nil }
      SSL_set_connect_state(ssl)
    case .server: SSL_set_accept_state(ssl)
    }
    return engine
  }

  /// Sets SNI and the name to verify. An IP address is verified as one and never sent (RFC 6066 section 3).
  private func expect() -> Bool {
    guard let name = expectedName?.view.baseAddress?.assumingMemoryBound(to: CChar.self) else { return true }
    guard let parameters = SSL_get0_param(ssl) else { return false }
    if X509_VERIFY_PARAM_set1_ip_asc(parameters, name) == 1 { return true }
    ERR_clear_error()
    X509_VERIFY_PARAM_set_hostflags(
      parameters, UInt32(X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT))
    return penstock_ssl_set_sni(ssl, name) == 1 && X509_VERIFY_PARAM_set1_host(parameters, name, 0) == 1
  }

  /// Goes on with the handshake. A client's first call makes its first flight of messages.
  @inline(never) @_optimize(size)
  public func handshake() -> Progress {
    if failure != nil { return .failed }
    if handshakeIsDone { return .done }
    ERR_clear_error()
    handshakeBytes += input.count
    let result = SSL_do_handshake(ssl)
    handshakeBytes -= input.count
    // The limit is more than any certificates take; OpenSSL itself accepts some messages without end.
    if handshakeBytes > Limits.handshakeBytes {
      fail(ByteBuffer().say("TLS handshake failed: over ").say(Limits.handshakeBytes >> 20).say(" MiB long"))
      return .failed
    }
    guard result == 1 else { return settle(result) == .needsMore ? .needsMore : .failed }
    if context.usesALPN, HTTPVersion(alpn: alpn) == nil {
      fail(
        ByteBuffer().say(
          context.role == .client
            ? "the server did not choose HTTP/2 (no ALPN \"h2\")"
            : "the client did not offer HTTP/2 (no ALPN \"h2\")"))
      return .failed
    }
    handshakeIsDone = true
    if context.role == .server { return .done }
    SSL_set_info_callback(ssl) { ssl, _, _ in
      guard let ssl, let bio = SSL_get_rbio(ssl), let engine = TLSEngine.of(bio) else { return }
      engine._withUnsafeGuaranteedRef { $0.events += 1 }
    }
    return .done
  }

  /// Reads plaintext, after the handshake. Call it until `needsMore`.
  public func read(into plaintext: UnsafeMutableRawBufferPointer) -> Received {
    if failure != nil { return .failed }
    guard handshakeIsDone, !plaintext.isEmpty else { return .needsMore }
    // Without this check OpenSSL would find out by itself that there is no input, which takes a tenth of the
    // time of a record.
    if input.isEmpty, SSL_has_pending(ssl) == 0 { return .needsMore }
    // With read-ahead a small record takes one read of the BIO instead of two. For large records read-ahead
    // is off, because OpenSSL would have to move bytes.
    SSL_set_read_ahead(ssl, input.count <= TLSEngine.fewBytes ? 1 : 0)
    var n = 0
    let result = SSL_read_ex(ssl, plaintext.baseAddress, plaintext.count, &n)
    if result == 1 { return .bytes(n) }
    // SSL_want also gives SSL_READING after a failure within a handshake message: only the BIO's flags tell whether
    // there was too little input.
    if SSL_want(ssl) == SSL_READING, BIO_test_flags(SSL_get_rbio(ssl), BIO_FLAGS_READ) != 0 {
      return .needsMore
    }
    // SSL_get_error is not used: an error that other code has left on this thread would look like one of this
    // connection, and clearing the queue before each read took 200 instructions.
    if SSL_get_shutdown(ssl) & SSL_RECEIVED_SHUTDOWN != 0, SSL_in_init(ssl) == 0 { return .closed }
    explain(ERR_peek_last_error())
    ERR_clear_error()
    return .failed
  }

  /// The number of TLS's own messages since this function was last called. Call it when `read` returns
  /// `needsMore`; if there were any such messages, and `input` is not empty, call `read` again.
  func takeEvents() -> Int {
    defer { events = 0 }
    return events
  }

  /// Turns all of `plaintext` into records in `output`. False: TLS has failed, or the handshake is not done.
  public func write(_ plaintext: ByteView) -> Bool {
    if failure != nil || !handshakeIsDone { return false }
    if plaintext.isEmpty { return true }
    var n = 0
    if SSL_write_ex(ssl, plaintext.baseAddress, plaintext.count, &n) == 1 { return n == plaintext.count }
    // The BIO always takes everything, so there is nothing to wait for.
    explain(ERR_peek_last_error())
    ERR_clear_error()
    return false
  }

  /// Adds to `output` a key update that asks the peer for one in return. Only the tests' server uses it.
  public func updateKeys() {
    _ = SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED)
    _ = SSL_do_handshake(ssl)
  }

  /// Adds a session ticket to `output`. Only the tests' server uses it.
  public func sendTicket() {
    _ = SSL_new_session_ticket(ssl)
    _ = SSL_do_handshake(ssl)
  }

  /// Adds our close_notify to `output`.
  @inline(never) @_optimize(size)
  public func close() {
    guard failure == nil, handshakeIsDone else { return }
    ERR_clear_error()
    _ = SSL_shutdown(ssl)
    ERR_clear_error()
  }

  /// The version, such as "TLSv1.3", in static storage.
  public var version: UnsafePointer<CChar>? { SSL_get_version(ssl) }

  /// The cipher, such as "TLS_AES_256_GCM_SHA384", in static storage.
  var cipher: UnsafePointer<CChar>? { SSL_CIPHER_get_name(SSL_get_current_cipher(ssl)) }

  /// The protocol that ALPN has agreed on; empty: none. The view lasts as long as the engine lives.
  var alpn: ByteView {
    var selected: UnsafePointer<UInt8>?
    var count: UInt32 = 0
    SSL_get0_alpn_selected(ssl, &selected, &count)
    return ByteView(start: selected, count: Int(count))
  }

  /// The certificates that the server has shown, its own first. The caller frees the reference with
  /// `penstock_chain_free`.
  func retainedPeerChain() -> OpaquePointer? { penstock_ssl_chain(ssl) }

  // MARK: Errors in words

  private func fail(_ text: ByteBuffer) { failure = text }

  /// The meaning of `result`, a return value of OpenSSL's that is not success.
  @inline(never) @_optimize(size)
  private func settle(_ result: Int32) -> Received {
    switch SSL_get_error(ssl, result) {
    case SSL_ERROR_WANT_READ, SSL_ERROR_WANT_WRITE: return .needsMore
    case SSL_ERROR_ZERO_RETURN: return .closed
    default:
      explain(ERR_peek_error())
      ERR_clear_error()
      return .failed
    }
  }

  @inline(never) @_optimize(size)
  private func explain(_ error: UInt) {
    if outOfMemory { return fail(ByteBuffer().say("no memory for TLS records")) }
    if !handshakeIsDone, let text = saysNoTLS() { return fail(text) }
    let reason = penstock_error_reason(error)
    let text = ByteBuffer()
    if reason == SSL_R_CERTIFICATE_VERIFY_FAILED {
      text.say("certificate verify failed: ")
      text.say(cString: X509_verify_cert_error_string(SSL_get_verify_result(ssl)))
      if let expectedName {
        text.say(", expected host ").say(ByteView(rebasing: expectedName.view.dropLast()))
      }
      return fail(text)
    }
    // Reasons above SSL_AD_REASON_OFFSET are numbers of alerts.
    if penstock_error_is_ssl(error) == 1, reason >= SSL_AD_REASON_OFFSET, reason < SSL_AD_REASON_OFFSET + 256
    {
      let alert = reason - SSL_AD_REASON_OFFSET
      text.say("the peer refused with a TLS alert: ")
      switch alert {
      case SSL_AD_NO_APPLICATION_PROTOCOL: text.say("no application protocol (no ALPN \"h2\" in common)")
      // OpenSSL 3.0 has no words for this alert.
      case SSL_AD_CERTIFICATE_REQUIRED: text.say("certificate required")
      default: text.say(cString: SSL_alert_desc_string_long(alert))
      }
      // The alerts from 40 (handshake_failure) to 49 (access_denied) are mostly about certificates.
      if alert == SSL_AD_CERTIFICATE_REQUIRED || alert >= 40 && alert < 50 { sayAsked(text) }
      return fail(text)
    }
    if !handshakeIsDone { text.say("TLS handshake failed: ") } else { text.say("TLS failed: ") }
    if let words = ERR_reason_error_string(error) {
      text.say(cString: words)
    } else {
      text.say("protocol error")
    }
    fail(text)
  }

  /// Adds a guess at why a server has gone: with TLS 1.3 it checks a client's certificate after the client's
  /// handshake is done, and not every server reports its verdict.
  @inline(never) @_optimize(size)
  func sayAsked(_ text: ByteBuffer) {
    guard wasAsked else { return }
    text.say("; it asked for a client certificate, and ")
      .say(SSL_get_certificate(ssl) == nil ? "the channel has none" : "may not accept the channel's")
  }

  /// Whether no byte has come from the peer.
  var isUnanswered: Bool { opening.isEmpty && input.isEmpty }

  /// The failure of a peer whose first bytes are not TLS; nil: they may be TLS. A record begins with its type, 20 to
  /// 24, and the version's first byte, 3 (RFC 8446 section 5.1).
  @inline(never) @_optimize(size)
  private func saysNoTLS() -> ByteBuffer? {
    let seen = ByteBuffer()
    seen.say(opening.view).say(ByteView(rebasing: input.view.prefix(TLSEngine.openingSize - opening.count)))
    let bytes = seen.view
    guard bytes.count >= 2, bytes[0] < 20 || bytes[0] > 24 || bytes[1] != 3 else { return nil }
    let text = ByteBuffer().say("the peer does not speak TLS: ")
    if bytesEqual(ByteView(rebasing: bytes.prefix(5)), "HTTP/") {
      let line = bytes.prefix { $0 != 0x0D && $0 != 0x0A }
      return text.say("it answered \"").say(printable: ByteView(rebasing: line), limit: 48).say("\"")
    }
    // These bytes begin a SETTINGS frame of less than 256 bytes, with which an HTTP/2 server begins.
    if bytes.count >= 4, bytes[0] == 0, bytes[1] == 0, bytes[3] == 4 {
      return text.say("it answered in cleartext HTTP/2")
    }
    return text.say("it sent \"").say(printable: bytes, limit: 16).say("\"")
  }

  // MARK: Callbacks of OpenSSL

  /// Makes the engines of `context` note that the server asks for a client certificate. The certificate itself is set
  /// in the context.
  static func watchRequests(_ context: OpaquePointer) {
    SSL_CTX_set_cert_cb(
      context,
      { ssl, _ in
        if let bio = SSL_get_rbio(ssl) { TLSEngine.of(bio)?._withUnsafeGuaranteedRef { $0.wasAsked = true } }
        return 1
      }, nil)
  }

  /// Makes the methods of the BIO; nil: no memory.
  static func makeBIOMethod() -> OpaquePointer? {
    guard let method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "penstock") else {
      return nil
    }
    BIO_meth_set_read_ex(
      method,
      { bio, out, count, taken in
        guard let bio, let out, let taken, let engine = TLSEngine.of(bio) else { return 0 }
        penstock_bio_no_retry(bio)
        return engine._withUnsafeGuaranteedRef { $0.give(count, bio, out, taken) }
      })
    BIO_meth_set_write_ex(
      method,
      { bio, bytes, count, taken in
        guard let bio, let taken, let engine = TLSEngine.of(bio) else { return 0 }
        penstock_bio_no_retry(bio)
        let isDone = engine._withUnsafeGuaranteedRef { $0.take(ByteView(start: bytes, count: count)) }
        taken.pointee = isDone ? count : 0
        return isDone ? 1 : 0
      })
    BIO_meth_set_ctrl(method, { _, command, _, _ in command == BIO_CTRL_FLUSH ? 1 : 0 })
    return method
  }

  /// The engine of a BIO. The engine owns the SSL, which owns the BIO, so no reference is counted.
  private static func of(_ bio: OpaquePointer) -> Unmanaged<TLSEngine>? {
    BIO_get_data(bio).map { Unmanaged.fromOpaque($0) }
  }

  /// Gives OpenSSL at most `count` bytes of `input`. Returns 0 if there are none, or after `mostEvents` events.
  private func give(
    _ count: Int, _ bio: OpaquePointer, _ out: UnsafeMutablePointer<CChar>,
    _ taken: UnsafeMutablePointer<Int>
  ) -> Int32 {
    let available = events < TLSEngine.mostEvents ? min(count, input.count) : 0
    taken.pointee = available
    guard available > 0, let start = input.view.baseAddress else {
      penstock_bio_wants_read(bio)
      return 0
    }
    memcpy(out, start, available)
    if opening.count < TLSEngine.openingSize {
      let wanted = min(available, TLSEngine.openingSize - opening.count)
      _ = opening.append(ByteView(start: start, count: wanted))
    }
    input.consume(available)
    return 1
  }

  /// Takes ciphertext of OpenSSL's for `output`. False: no memory.
  private func take(_ bytes: ByteView) -> Bool {
    if output.append(bytes) { return true }
    outOfMemory = true
    return false
  }
}
