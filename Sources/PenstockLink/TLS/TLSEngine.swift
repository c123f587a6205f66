import CPenstockOpenSSL
import CPenstockSystem
import PenstockWire
import PenstockNames

/// TLS of one connection, without I/O: ciphertext goes in and out through the buffers `input` and `output`.
/// OpenSSL reads and writes them through a BIO of our own, because its socket BIO raises SIGPIPE. Used by one
/// thread at a time.
///
/// ```
/// handshaking --handshake(): done--> open --peer's close_notify--> closed
///      \------------- any error: failed, `failure` says why ----------/
/// ```
///
/// After each call the caller sends the bytes in `output`. It also does so after a failure, because `output`
/// then has the alert for the peer.
public final class TLSEngine {
  public enum Progress: Equatable { case needsMore, done, failed }
  public enum Received: Equatable {
    case bytes(Int)
    case needsMore
    /// The peer has sent close_notify, so the connection has ended regularly and was not cut off.
    case closed
    case failed
  }

  /// Ciphertext from the peer. The caller appends to this buffer, or receives into its spare room, and then
  /// calls `handshake` or `read`.
  public let input = ByteBuffer()
  /// Ciphertext for the peer. The caller sends it, and then calls `consume` of the buffer.
  public let output = ByteBuffer()
  /// The reason why TLS has failed; nil: it has not failed.
  public private(set) var failure: ByteBuffer?

  private let context: TLSContext
  private let sessions: TLSSessions?
  let ssl: OpaquePointer
  /// The names of which the server's certificate must have one, with a NUL at the end of each; the first is
  /// sent. Empty: any certificate.
  private let expectedNames: [ByteBuffer]
  /// The first bytes that the peer has sent. They show whether the peer speaks TLS.
  private let opening = ByteBuffer()
  private static let openingSize = 64
  private static let fewBytes = 2048
  private var handshakeIsDone = false
  private var handshakeBytes = 0
  /// The number of TLS events since the last `takeEvents`: messages of TLS itself, such as key updates,
  /// tickets and alerts.
  private var events = 0
  /// The number of events after which `read` returns `needsMore`, even if there is more input.
  private static let mostEvents = 256
  private var outOfMemory = false
  /// Whether the server has asked for a client certificate.
  private var wasAsked = false
  /// The program's own check of the server's certificates; nil: there is none. Set before the handshake, and
  /// let go after it.
  public var verifier: ServerVerifier?
  /// The reason why the server's certificate was refused, and the certificate's names; nil: it was not.
  private var refusal: ByteBuffer?

  private init(_ context: TLSContext, _ ssl: OpaquePointer, expecting names: [ByteBuffer]) {
    self.context = context
    sessions = context.sessions
    self.ssl = ssl
    expectedNames = names
  }

  deinit { SSL_free(ssl) }

  /// Makes an engine. nil: no memory, or another reason, which `TLSContext.reason` returns. `host`: the name
  /// or IP address of the peer that a client expects, unless the options give other names.
  public static func make(_ context: TLSContext, host: ByteView?) -> TLSEngine? {
    ERR_clear_error()
    var names = context.serverNames
    if let host, names.isEmpty {
      guard let name = expected(host) else { return nil }
      names = [name]
    }
    guard let ssl = SSL_new(context.handle) else { return nil }
    let engine = TLSEngine(context, ssl, expecting: context.role == .client ? names : [])
    guard let bio = BIO_new(context.bioMethod) else { return nil }
    // The function `of` reads this pointer to find the engine.
    BIO_set_data(bio, Unmanaged.passUnretained(engine).toOpaque())
    BIO_set_init(bio, 1)
    SSL_set_bio(ssl, bio, bio)
    switch context.role {
    case .client:
      guard engine.sendName(), let parameters = SSL_get0_param(ssl) else { return nil }
      // Without this flag the constraints of an authority would also hold for the common name, which does not count.
      X509_VERIFY_PARAM_set_hostflags(parameters, UInt32(X509_CHECK_FLAG_NEVER_CHECK_SUBJECT))
      SSL_set_connect_state(ssl)
      if let session = engine.sessions?.take(for: names.first) {
        _ = SSL_set_session(ssl, session)
        SSL_SESSION_free(session)
      }
    case .server: SSL_set_accept_state(ssl)
    }
    return engine
  }

  /// The form in which an engine expects a host name or an IP address; nil: no memory.
  static func expected(_ host: ByteView) -> ByteBuffer? {
    guard let name = ByteBuffer(copying: HostName.forTLS(host)), name.append(byte: 0) else { return nil }
    return name
  }

  private static func with<R>(_ name: ByteBuffer, _ body: (UnsafePointer<CChar>?) -> R) -> R {
    withExtendedLifetime(name) { body(name.view.baseAddress?.assumingMemoryBound(to: CChar.self)) }
  }

  private static func isAddress(_ name: ByteBuffer) -> Bool { with(name) { penstock_is_address($0) == 1 } }

  /// Sets the server name that is sent (SNI). An IP address is never sent (RFC 6066 section 3).
  private func sendName() -> Bool {
    guard let name = expectedNames.first, !TLSEngine.isAddress(name) else { return true }
    return TLSEngine.with(name) { penstock_ssl_set_sni(ssl, $0) == 1 }
  }

  /// OpenSSL's number for the fault of a certificate that has none of the expected names; nil: it has one, or
  /// SPIFFE ids count in place of names. OpenSSL itself could compare only one address, or host names alone.
  private func nameFlaw(of certificate: OpaquePointer) -> Int32? {
    if expectedNames.isEmpty || !context.identity.spiffeIDs.isEmpty { return nil }
    let isExpected = expectedNames.contains { name in
      TLSEngine.with(name) { penstock_certificate_names(certificate, $0) == 1 }
    }
    if isExpected { return nil }
    return expectedNames.allSatisfy { TLSEngine.isAddress($0) }
      ? X509_V_ERR_IP_ADDRESS_MISMATCH : X509_V_ERR_HOSTNAME_MISMATCH
  }

  /// Continues the handshake. The first call of a client makes its first messages.
  public func handshake() -> Progress {
    if failure != nil { return .failed }
    if handshakeIsDone { return .done }
    ERR_clear_error()
    handshakeBytes += input.count
    let result = SSL_do_handshake(ssl)
    handshakeBytes -= input.count
    // No real certificates take this many bytes. OpenSSL itself would accept some messages without end.
    if handshakeBytes > Limits.handshakeBytes {
      fail(ByteBuffer().say("TLS handshake failed: over ").say(Limits.handshakeBytes >> 20).say(" MiB long"))
      return .failed
    }
    guard result == 1 else { return settle(result) == .needsMore ? .needsMore : .failed }
    if context.http == .http2, HTTPVersion(alpn: alpn) != .http2 {
      fail(
        ByteBuffer().say(
          context.role == .client
            ? "the server did not choose HTTP/2 (no ALPN \"h2\")"
            : "the client did not offer HTTP/2 (no ALPN \"h2\")"))
      return .failed
    }
    handshakeIsDone = true
    verifier = nil
    if context.role == .server { return .done }
    SSL_set_info_callback(ssl) { ssl, _, _ in
      guard let ssl, let bio = SSL_get_rbio(ssl), let engine = TLSEngine.of(bio) else { return }
      engine._withUnsafeGuaranteedRef { $0.events += 1 }
    }
    return .done
  }

  /// Reads plaintext, after the handshake. The caller repeats the call until it returns `needsMore`.
  public func read(into plaintext: UnsafeMutableRawBufferPointer) -> Received {
    if failure != nil { return .failed }
    guard handshakeIsDone, !plaintext.isEmpty else { return .needsMore }
    // OpenSSL itself would need a tenth of the time of a record to find that there is no input.
    if input.isEmpty, SSL_has_pending(ssl) == 0 { return .needsMore }
    // With read-ahead, OpenSSL needs one read of the BIO for a small record instead of two. For large records
    // read-ahead is off, because OpenSSL would then have to move the bytes.
    SSL_set_read_ahead(ssl, input.count <= TLSEngine.fewBytes ? 1 : 0)
    var n = 0
    let result = SSL_read_ex(ssl, plaintext.baseAddress, plaintext.count, &n)
    if result == 1 { return .bytes(n) }
    // SSL_want also returns SSL_READING after a failure within a handshake message. Only the flags of the BIO
    // show whether there was too little input.
    if SSL_want(ssl) == SSL_READING, BIO_test_flags(SSL_get_rbio(ssl), BIO_FLAGS_READ) != 0 {
      return .needsMore
    }
    // SSL_get_error is not used. It would take an error that other code has left on this thread for an error
    // of this connection. To clear the error queue before each read would take 200 instructions.
    if SSL_get_shutdown(ssl) & SSL_RECEIVED_SHUTDOWN != 0, SSL_in_init(ssl) == 0 { return .closed }
    explain(ERR_peek_last_error())
    ERR_clear_error()
    return .failed
  }

  /// Returns the number of messages of TLS itself since the last call of this function. The caller calls it
  /// when `read` returns `needsMore`. If the number is not 0 and `input` is not empty, the caller calls
  /// `read` again.
  public func takeEvents() -> Int {
    defer { events = 0 }
    return events
  }

  /// Encrypts `plaintext` as records, and appends them to `output`. False: TLS has failed, or the handshake
  /// is not done.
  public func write(_ plaintext: ByteView) -> Bool {
    if failure != nil || !handshakeIsDone { return false }
    if plaintext.isEmpty { return true }
    var n = 0
    if SSL_write_ex(ssl, plaintext.baseAddress, plaintext.count, &n) == 1 { return n == plaintext.count }
    // The BIO always accepts all bytes, so this is a failure, and not a reason to wait.
    explain(ERR_peek_last_error())
    ERR_clear_error()
    return false
  }

  /// Appends a key update to `output`, which asks the peer for a key update in return. Only the server of the
  /// tests uses it.
  public func updateKeys() {
    _ = SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED)
    _ = SSL_do_handshake(ssl)
  }

  /// Appends a session ticket to `output`. Only the server of the tests uses it.
  public func sendTicket() {
    _ = SSL_new_session_ticket(ssl)
    _ = SSL_do_handshake(ssl)
  }

  /// Appends our close_notify to `output`.
  public func close() {
    guard failure == nil, handshakeIsDone else { return }
    ERR_clear_error()
    _ = SSL_shutdown(ssl)
    ERR_clear_error()
  }

  /// The TLS version, such as "TLSv1.3", in static storage.
  public var version: UnsafePointer<CChar>? { SSL_get_version(ssl) }

  /// Whether the handshake has resumed an earlier connection's session.
  public var isResumed: Bool { SSL_session_reused(ssl) == 1 }

  /// The cipher suite, such as "TLS_AES_256_GCM_SHA384", in static storage.
  public var cipher: UnsafePointer<CChar>? { SSL_CIPHER_get_name(SSL_get_current_cipher(ssl)) }

  /// The protocol that ALPN has selected; empty: none. The view is valid as long as the engine lives.
  public var alpn: ByteView {
    var selected: UnsafePointer<UInt8>?
    var count: UInt32 = 0
    SSL_get0_alpn_selected(ssl, &selected, &count)
    return ByteView(start: selected, count: Int(count))
  }

  /// The certificates that the server has sent, its own certificate first. The caller frees the reference
  /// with `penstock_chain_free`.
  func retainedPeerChain() -> OpaquePointer? { penstock_ssl_chain(ssl) }

  // MARK: Errors in words

  private func fail(_ text: ByteBuffer) { failure = text }

  /// Returns the meaning of `result`, which an OpenSSL function has returned as a failure or a need for
  /// input.
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

  private func explain(_ error: UInt) {
    if outOfMemory { return fail(ByteBuffer().say("no memory for TLS records")) }
    // OpenSSL's first error may be about a signature, where the refusal says which certificate it is about.
    if let refusal { return fail(ByteBuffer().say("certificate verify failed: ").say(refusal.view)) }
    if !handshakeIsDone, let text = saysNoTLS() { return fail(text) }
    let reason = penstock_error_reason(error)
    let text = ByteBuffer()
    if reason == SSL_R_CERTIFICATE_VERIFY_FAILED {
      text.say("certificate verify failed: ")
      return fail(text.say(cString: X509_verify_cert_error_string(SSL_get_verify_result(ssl))))
    }
    // A reason above SSL_AD_REASON_OFFSET is the number of an alert from the peer.
    if penstock_error_is_ssl(error) == 1, reason >= SSL_AD_REASON_OFFSET, reason < SSL_AD_REASON_OFFSET + 256
    {
      let alert = reason - SSL_AD_REASON_OFFSET
      text.say("the peer refused with a TLS alert: ")
      switch alert {
      case SSL_AD_NO_APPLICATION_PROTOCOL: text.say("no application protocol (no ALPN \"h2\" in common)")
      // OpenSSL 3.0 has no text for this alert.
      case SSL_AD_CERTIFICATE_REQUIRED: text.say("certificate required")
      default: text.say(cString: SSL_alert_desc_string_long(alert))
      }
      // The alerts from 40 (handshake_failure) to 49 (access_denied) usually concern certificates.
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

  /// Adds a likely reason why a server has closed the connection. With TLS 1.3 a server checks the client's
  /// certificate after the client has finished the handshake, and some servers do not report a refusal.
  public func sayAsked(_ text: ByteBuffer) {
    guard wasAsked else { return }
    text.say("; it asked for a client certificate, and ")
      .say(SSL_get_certificate(ssl) == nil ? "the channel has none" : "may not accept the channel's")
  }

  /// Whether the peer has sent no byte.
  public var isUnanswered: Bool { opening.isEmpty && input.isEmpty }

  /// The error text if the peer's first bytes are not TLS; nil: they may be TLS. A TLS record begins with its
  /// type, 20 to 24, and the first byte of the version, 3 (RFC 8446 section 5.1).
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
    // These bytes begin a SETTINGS frame of less than 256 bytes. An HTTP/2 server without TLS begins with
    // such a frame.
    if bytes.count >= 4, bytes[0] == 0, bytes[1] == 0, bytes[3] == 4 {
      return text.say("it answered in cleartext HTTP/2")
    }
    return text.say("it sent \"").say(printable: bytes, limit: 16).say("\"")
  }

  // MARK: Callbacks of OpenSSL

  /// Makes each engine of `context` note in `wasAsked` that the server asks for a client certificate. The
  /// context itself has that certificate.
  static func watchRequests(_ context: OpaquePointer) {
    SSL_CTX_set_cert_cb(
      context,
      { ssl, _ in
        if let bio = SSL_get_rbio(ssl) { TLSEngine.of(bio)?._withUnsafeGuaranteedRef { $0.wasAsked = true } }
        return 1
      }, nil)
  }

  /// Makes each engine of `context` verify its server's certificate.
  static func verifyServers(_ context: OpaquePointer) {
    SSL_CTX_set_cert_verify_callback(
      context,
      { verification, _ in
        guard let verification, let ssl = penstock_verified_ssl(verification), let bio = SSL_get_rbio(ssl),
          let engine = TLSEngine.of(bio)
        else { return 0 }
        return engine._withUnsafeGuaranteedRef { $0.verify(verification) } ? 1 : 0
      }, nil)
  }

  private func verify(_ verification: OpaquePointer) -> Bool {
    guard let certificate = X509_STORE_CTX_get0_cert(verification) else { return false }
    if context.verifiesPeer {
      if context.checksRevocation { TLSEngine.allowUnlistedAuthorities(verification) }
      if X509_verify_cert(verification) != 1 {
        refusal = refusalWords(verification)
        return false
      }
      if let flaw = nameFlaw(of: certificate) {
        X509_STORE_CTX_set_error(verification, flaw)
        X509_STORE_CTX_set_current_cert(verification, certificate)
        refusal = refusalWords(verification)
        return false
      }
    }
    if context.identity.isEmpty, verifier == nil { return true }
    let chain = context.verifiesPeer ? X509_STORE_CTX_get0_chain(verification) : nil
    guard
      let flaw = context.identity.flaw(of: certificate, chain, TLSContext.library())
        ?? verifier?.flaw(of: chain ?? X509_STORE_CTX_get0_untrusted(verification), expectedNames.first)
    else { return true }
    PeerIdentity.say(certificate, to: flaw)
    refusal = flaw
    X509_STORE_CTX_set_error(verification, X509_V_ERR_APPLICATION_VERIFICATION)
    return false
  }

  /// Lets an authority's own certificate pass for which no list of revoked certificates was given. The server's
  /// certificate needs such a list.
  private static func allowUnlistedAuthorities(_ verification: OpaquePointer) {
    X509_STORE_CTX_set_verify_cb(verification) { isGood, verification in
      guard isGood == 0, let verification,
        X509_STORE_CTX_get_error(verification) == X509_V_ERR_UNABLE_TO_GET_CRL,
        X509_STORE_CTX_get_error_depth(verification) > 0
      else { return isGood }
      X509_STORE_CTX_set_error(verification, X509_V_OK)
      return 1
    }
  }

  private func refusalWords(_ verification: OpaquePointer) -> ByteBuffer {
    let text = ByteBuffer()
    text.say(cString: X509_verify_cert_error_string(Int(X509_STORE_CTX_get_error(verification))))
    if context.identity.spiffeIDs.isEmpty {
      for (index, name) in expectedNames.enumerated() {
        text.say(index == 0 ? ", expected host " : index == expectedNames.count - 1 ? " or " : ", ")
        withExtendedLifetime(name) { _ = text.say(ByteView(rebasing: name.view.dropLast())) }
      }
    }
    if let certificate = X509_STORE_CTX_get_current_cert(verification) {
      PeerIdentity.say(certificate, to: text)
    }
    return text
  }

  /// Makes each engine of `context` keep the sessions that its server offers. Only those of TLS 1.3 are kept:
  /// theirs are used once, and have keys of their own.
  static func keepSessions(_ context: OpaquePointer) {
    penstock_ssl_ctx_gives_sessions(context)
    SSL_CTX_sess_set_new_cb(context) { ssl, session in
      guard let ssl, let session, SSL_SESSION_get_protocol_version(session) == TLS1_3_VERSION,
        let bio = SSL_get_rbio(ssl), let engine = TLSEngine.of(bio)
      else { return 0 }
      engine._withUnsafeGuaranteedRef { $0.sessions?.put(session, for: $0.expectedNames.first) }
      return 1
    }
  }

  /// Makes each engine of `context` write its keys to the context's key log.
  static func logKeys(_ context: OpaquePointer) {
    SSL_CTX_set_keylog_callback(context) { ssl, line in
      guard let ssl, let line, let bio = SSL_get_rbio(ssl), let engine = TLSEngine.of(bio) else { return }
      engine._withUnsafeGuaranteedRef { $0.context.keyLog?.append(line) }
    }
  }

  /// Makes the BIO type that reads from `input` and writes to `output`; nil: no memory.
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

  /// The engine that uses `bio`. The engine owns the SSL, which owns the BIO, so no reference is counted.
  private static func of(_ bio: OpaquePointer) -> Unmanaged<TLSEngine>? {
    BIO_get_data(bio).map { Unmanaged.fromOpaque($0) }
  }

  /// The BIO's read function: gives OpenSSL at most `count` bytes of `input`. Returns 0 if `input` is empty,
  /// or after `mostEvents` events.
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

  /// The BIO's write function: appends ciphertext from OpenSSL to `output`. False: no memory.
  private func take(_ bytes: ByteView) -> Bool {
    if output.append(bytes) { return true }
    outOfMemory = true
    return false
  }
}
