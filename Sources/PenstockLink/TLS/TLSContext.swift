import CPenstockMemory
import CPenstockOpenSSL
import CPenstockSystem
import PenstockWire
import PenstockLoop
import PenstockNames

/// The only code that configures TLS: versions, ciphers, trusted roots, our own certificate, ALPN.
///
/// All OpenSSL objects belong to a private OSSL_LIB_CTX. So the host program's configuration of OpenSSL, and
/// its use of the default library context, have no effect here. A `TLSContext` does not change once it is
/// made: any number of engines may use it, on any thread.
///
/// A process has one such library context, which is never freed. Each thread that has used it keeps state in
/// it, and only that thread can free the state (OPENSSL_thread_stop_ex). Any thread of the host program may
/// have driven a runtime. If the library context were freed, such a thread would use a dangling pointer when
/// it exits.
public final class TLSContext {
  public enum Role { case client, server }

  public let role: Role
  /// The versions of HTTP that are negotiated by ALPN; nil: ALPN is not used.
  public let http: HTTPChoice?
  public let verifiesPeer: Bool
  /// The names that each engine expects in place of its host, with a NUL at the end of each; empty: none.
  let serverNames: [ByteBuffer]
  let identity: PeerIdentity
  /// Whether lists of revoked certificates are consulted.
  let checksRevocation: Bool
  /// The sessions for later connections; nil: no session is resumed.
  private(set) var sessions: TLSSessions?
  /// The file for the keys of connections; nil: none. It is set before the context is used.
  private(set) var keyLog: KeyLog?
  private var isRenewal = false
  public let handle: OpaquePointer
  let bioMethod: OpaquePointer

  private static let librarySlot = 3

  private init(
    role: Role, options: TLSOptions, serverNames: [ByteBuffer], handle: OpaquePointer,
    bioMethod: OpaquePointer
  ) {
    self.role = role
    http = options.usesALPN ? options.http : nil
    self.verifiesPeer = role == .server ? options.requiresClientCertificate : options.verifiesPeer
    self.serverNames = serverNames
    identity = PeerIdentity(pins: options.pins, spiffeIDs: options.spiffeIDs)
    checksRevocation = options.revocations != nil
    // A resumed session is not looked up in the lists, which may have run out.
    sessions = role == .client && options.resumes && !checksRevocation ? TLSSessions() : nil
    self.handle = handle
    self.bioMethod = bioMethod
  }

  deinit {
    SSL_CTX_free(handle)
    BIO_meth_free(bioMethod)
  }

  /// Lets later connections resume none of the sessions that there are, nor one of a ticket that an engine of before
  /// still gets.
  func forgetSessions() { if sessions != nil { sessions = TLSSessions() } }

  /// The library context of this process, made at the first use. A forked child makes another one. nil: no
  /// memory.
  static func library() -> OpaquePointer? {
    Process.withLock { () -> OpaquePointer? in
      let slot = Process.slot(librarySlot)
      if let known = OpaquePointer(bitPattern: slot.pointee) { return known }
      let fresh = OSSL_LIB_CTX_new()
      slot.pointee = UInt(bitPattern: fresh)
      return fresh
    }
  }

  /// Makes a configuration. `former`: the one that it replaces, on the driving thread; its key log goes on.
  public static func make(role: Role, options: TLSOptions, replacing former: TLSContext? = nil) -> Made<
    TLSContext
  > {
    using { makeOrSay(role: role, options: options, former) } ?? .failed(.noMemory)
  }

  private static func makeOrSay(role: Role, options: TLSOptions, _ former: TLSContext?) -> Made<TLSContext> {
    var names: [ByteBuffer] = []
    for name in options.serverNames {
      guard let expected = TLSEngine.expected(name.view) else { return .failed(.noMemory) }
      names.append(expected)
    }
    guard let library = library() else { return .failed(.noMemory) }
    guard
      let handle = SSL_CTX_new_ex(library, nil, role == .client ? TLS_client_method() : TLS_server_method())
    else { return .failed(SetupFailure("", reason("OpenSSL could not be started"))) }
    guard let method = TLSEngine.makeBIOMethod() else {
      SSL_CTX_free(handle)
      return .failed(.noMemory)
    }
    // From here on the `TLSContext` owns `handle` and `method`, and frees them.
    let context = TLSContext(
      role: role, options: options, serverNames: names, handle: handle, bioMethod: method)
    context.isRenewal = former != nil
    context.keyLog = former?.keyLog
    if let failure = context.configure(options) { return .failed(failure) }
    return .made(context)
  }

  private func configure(_ options: TLSOptions) -> SetupFailure? {
    guard penstock_ssl_ctx_harden(handle) == 1 else {
      return SetupFailure("", TLSContext.reason("OpenSSL refuses TLS 1.2"))
    }
    if let failure = allowCiphers(options) ?? logKeys(options) { return failure }
    if let http { offer(http) }
    if sessions != nil { TLSEngine.keepSessions(handle) }
    return trust(options) ?? identify(options)
  }

  // MARK: Ciphers and keys

  private func allowCiphers(_ options: TLSOptions) -> SetupFailure? {
    // Only ciphers with forward secrecy and AEAD are allowed, because RFC 9113 appendix A prohibits all
    // others with HTTP/2. All ciphers of TLS 1.3 have both properties.
    guard SSL_CTX_set_cipher_list(handle, "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:DHE+CHACHA20") == 1 else {
      return SetupFailure("", TLSContext.reason("OpenSSL has none of the allowed cipher suites"))
    }
    let older = ByteBuffer(), newer = ByteBuffer()
    for name in options.ciphers {
      let list = TLSContext.isOfTLS13(name.view) ? newer : older
      list.say(list.isEmpty ? "" : ":").say(name.view)
    }
    let hasOlder = options.ciphers.isEmpty || !older.isEmpty
    let hasNewer = options.ciphers.isEmpty || !newer.isEmpty
    if options.needsTLS13 && !hasNewer {
      return SetupFailure("ciphers", "\"min_version\" is \"1.3\", and no cipher suite of TLS 1.3 is named")
    }
    let least = options.needsTLS13 || !hasOlder ? TLS1_3_VERSION : TLS1_2_VERSION
    guard penstock_ssl_ctx_set_versions(handle, least, hasNewer ? 0 : TLS1_2_VERSION) == 1 else {
      return SetupFailure("", TLSContext.reason("OpenSSL refuses the versions of TLS"))
    }
    if options.ciphers.isEmpty { return nil }
    guard older.append(byte: 0), newer.append(byte: 0), let olderNames = TLSContext.cString(older),
      let newerNames = TLSContext.cString(newer)
    else { return .noMemory }
    // A name that OpenSSL does not know is found below.
    _ = SSL_CTX_set_ciphersuites(handle, newerNames)
    if older.count > 1 { _ = SSL_CTX_set_cipher_list(handle, olderNames) }
    withExtendedLifetime((older, newer)) {}
    ERR_clear_error()
    for name in options.ciphers {
      guard let copy = ByteBuffer(copying: name.view), copy.append(byte: 0),
        let text = TLSContext.cString(copy)
      else { return .noMemory }
      let known = withExtendedLifetime(copy) { penstock_ssl_ctx_has_cipher(handle, text) }
      if known == 1 { continue }
      let flaw: StaticString = known == 0 ? " is not known" : " lacks forward secrecy, AEAD or certificates"
      return SetupFailure("ciphers", ByteBuffer().say(printable: name.view, limit: 64).say(flaw))
    }
    return nil
  }

  private static func isOfTLS13(_ name: ByteView) -> Bool {
    bytesEqual(ByteView(rebasing: name.prefix(4)), "TLS_")
  }

  private static func cString(_ text: ByteBuffer) -> UnsafePointer<CChar>? {
    text.view.baseAddress?.assumingMemoryBound(to: CChar.self)
  }

  private func logKeys(_ options: TLSOptions) -> SetupFailure? {
    guard let path = options.keyLogFile else { return nil }
    if keyLog != nil {
      TLSEngine.logKeys(handle)
      return nil
    }
    switch KeyLog.open(path.view) {
    case .failed(let code): return TLSContext.unusable("key_log_file", "cannot write the file", code)
    case .opened(let log):
      keyLog = log
      TLSEngine.logKeys(handle)
      return nil
    }
  }

  /// The protocol names for ALPN, each after its length, the preferred one first (RFC 7301 section 3.1).
  private static func protocols(_ http: HTTPChoice) -> StaticString {
    switch http {
    case .auto: "\u{02}h2\u{08}http/1.1"
    case .http2: "\u{02}h2"
    case .http1: "\u{08}http/1.1"
    }
  }

  private func offer(_ http: HTTPChoice) {
    let protocols = TLSContext.protocols(http)
    switch role {
    case .client:
      _ = SSL_CTX_set_alpn_protos(handle, protocols.utf8Start, UInt32(protocols.utf8CodeUnitCount))
    case .server:
      // The pointer to `ours` stays valid, because it points to a string literal.
      SSL_CTX_set_alpn_select_cb(
        handle,
        { _, selected, selectedCount, offered, offeredCount, ours in
          guard let offered, let selected, let ours = ours?.assumingMemoryBound(to: UInt8.self) else {
            return SSL_TLSEXT_ERR_ALERT_FATAL
          }
          var choice: UnsafeMutablePointer<UInt8>?
          let count = UInt32(strlen(UnsafeRawPointer(ours).assumingMemoryBound(to: CChar.self)))
          let result = SSL_select_next_proto(&choice, selectedCount, ours, count, offered, offeredCount)
          selected.pointee = UnsafePointer(choice)
          return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL
        }, UnsafeMutableRawPointer(mutating: protocols.utf8Start))
    }
  }

  // MARK: Trust

  private func trust(_ options: TLSOptions) -> SetupFailure? {
    switch role {
    case .client:
      TLSEngine.watchRequests(handle)
      TLSEngine.verifyServers(handle)
      // Otherwise OpenSSL would not heed what `verify` of the engine finds.
      SSL_CTX_set_verify(handle, SSL_VERIFY_PEER, nil)
      if !verifiesPeer && !identity.spiffeIDs.isEmpty {
        return SetupFailure("spiffe_ids", "they have to be verified, but \"verify\" is false")
      }
      if !verifiesPeer && checksRevocation {
        return SetupFailure("verify", "it is false, but there are lists of revoked certificates")
      }
    case .server:
      let mode = SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT
      SSL_CTX_set_verify(handle, verifiesPeer ? mode : SSL_VERIFY_NONE, nil)
      // A server that asks for certificates can't resume sessions without a name for their purpose.
      _ = SSL_CTX_set_session_id_context(handle, "penstock", 8)
    }
    // Roots in the options are checked even if no certificate is verified, so that a mistake in the roots is
    // reported early.
    let failure = options.roots.map { trust($0) } ?? (verifiesPeer ? trustSystem() : nil)
    return failure ?? options.revocations.flatMap { revoke($0) }
  }

  private func trust(_ source: TLSOptions.Source) -> SetupFailure? {
    switch source {
    case .pem(let pem): return addRoots(pem.view, field: "roots_pem")
    case .file(let path):
      switch SmallFile.read(path.view, onlyRegular: isRenewal) {
      case .failed(let code): return TLSContext.unreadable("roots_file", "the file", code)
      case .bytes(let pem): return addRoots(pem.view, field: "roots_file")
      }
    }
  }

  private func trustSystem() -> SetupFailure? {
    var failure: SetupFailure?
    for index in 0..<SystemRoots.count {
      let path = SystemRoots.path(index)
      switch SmallFile.read(path.bytes, onlyRegular: isRenewal) {
      case .bytes(let pem): return addRoots(pem.view, field: "")
      case .failed(ENOENT), .failed(ENOTDIR): break
      case .failed(let code): failure = failure ?? TLSContext.unreadable("", path, code)
      }
    }
    return failure
      ?? SetupFailure(
        "", "this system has no roots on any known path: set \"roots_pem\" or \"roots_file\"")
  }

  private func addRoots(_ pem: ByteView, field: StaticString) -> SetupFailure? {
    guard let store = SSL_CTX_get_cert_store(handle) else { return .noMemory }
    // Each of these certificates is trusted, also one that is not signed by itself, such as an intermediate authority
    // or the server's own certificate.
    _ = X509_STORE_set_flags(store, UInt(X509_V_FLAG_PARTIAL_CHAIN))
    return eachCertificate(pem, field: field, .root(store))
  }

  private func revoke(_ source: TLSOptions.Source) -> SetupFailure? {
    switch source {
    case .pem(let pem): return addRevocations(pem.view, field: "crls_pem")
    case .file(let path):
      switch SmallFile.read(path.view, onlyRegular: isRenewal) {
      case .failed(let code): return TLSContext.unreadable("crls_file", "the file", code)
      case .bytes(let pem): return addRevocations(pem.view, field: "crls_file")
      }
    }
  }

  private func addRevocations(_ pem: ByteView, field: StaticString) -> SetupFailure? {
    guard let store = SSL_CTX_get_cert_store(handle) else { return .noMemory }
    _ = X509_STORE_set_flags(store, UInt(X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL))
    guard let count = Int32(exactly: pem.count), count > 0, let bio = BIO_new_mem_buf(pem.baseAddress, count)
    else { return SetupFailure(field, "no list of revoked certificates in PEM form") }
    defer { BIO_free(bio) }
    var index = 0
    while true {
      var list = X509_CRL_new_ex(TLSContext.library(), nil)
      guard list != nil else { return .noMemory }
      defer { X509_CRL_free(list) }
      ERR_clear_error()
      guard PEM_read_bio_X509_CRL(bio, &list, { _, _, _, _ in 0 }, nil) != nil, let read = list,
        X509_STORE_add_crl(store, read) == 1
      else {
        if penstock_error_is_pem_end(ERR_peek_last_error()) == 1 {
          if index > 0 { return nil }
          return SetupFailure(field, TLSContext.reason("no list of revoked certificates in PEM form"))
        }
        let text = ByteBuffer().say("list ").say(index + 1).say(" does not parse")
        return SetupFailure(field, TLSContext.reason(text))
      }
      index += 1
    }
  }

  // MARK: Our own certificate

  private func identify(_ options: TLSOptions) -> SetupFailure? {
    guard let chain = options.certificateChain else {
      if options.privateKey != nil { return SetupFailure("private_key", "a key without a certificate chain") }
      return role == .server ? SetupFailure("certificate_chain", "a server needs one") : nil
    }
    guard let key = options.privateKey else {
      return SetupFailure("certificate_chain", "a certificate chain without its private key")
    }
    switch chain {
    case .pem(let pem):
      if let failure = eachCertificate(pem.view, field: "certificate_chain_pem", .own) { return failure }
    case .file(let path):
      switch SmallFile.read(path.view, onlyRegular: isRenewal) {
      case .failed(let code): return TLSContext.unreadable("certificate_chain_file", "the file", code)
      case .bytes(let pem):
        if let failure = eachCertificate(pem.view, field: "certificate_chain_file", .own) { return failure }
      }
    }
    switch key {
    case .pem(let pem): return useKey(pem, field: "private_key_pem")
    case .file(let path):
      switch SmallFile.read(path.view, onlyRegular: isRenewal) {
      case .failed(let code): return TLSContext.unreadable("private_key_file", "the file", code)
      case .bytes(let pem): return useKey(pem, field: "private_key_file")
      }
    }
  }

  private func useKey(_ pem: ByteBuffer, field: StaticString) -> SetupFailure? {
    guard let key = TLSContext.privateKey(pem.view) else {
      return SetupFailure(field, TLSContext.reason(TLSContext.noKey))
    }
    defer { EVP_PKEY_free(key) }
    guard SSL_CTX_use_PrivateKey(handle, key) == 1, SSL_CTX_check_private_key(handle) == 1 else {
      return SetupFailure(field, TLSContext.reason("the private key does not belong to the certificate"))
    }
    return nil
  }

  static var noKey: StaticString { "no private key in PEM form that could be read without a password" }

  /// Reads a private key, which the caller frees; nil: OpenSSL has the reason, or there is no such key.
  static func privateKey(_ pem: ByteView) -> OpaquePointer? {
    guard let count = Int32(exactly: pem.count), let bio = BIO_new_mem_buf(pem.baseAddress, count) else {
      return nil
    }
    defer { BIO_free(bio) }
    // The callback refuses a password. Without a callback OpenSSL would ask for the password on the terminal.
    return PEM_read_bio_PrivateKey_ex(bio, nil, { _, _, _, _ in 0 }, nil, library(), nil)
  }

  /// Calls `body`, which uses OpenSSL outside of a connection. nil: there was no memory.
  static func using<R>(_ body: () -> R) -> R? {
    // The call counts as a held lock, so that a fork waits until it returns. Otherwise a forked child might find
    // OpenSSL's own locks held.
    cm_enter()
    defer { cm_exit() }
    // OpenSSL's own atexit handler would free its tables while a runtime still works as the process exits.
    // This call prevents that. It must be the first use of OpenSSL, because any other function would start
    // OpenSSL with the handler.
    _ = OPENSSL_init_crypto(UInt64(OPENSSL_INIT_NO_ATEXIT), nil)
    // The queue of errors is the thread's, and so the host program's, too.
    ERR_clear_error()
    defer { ERR_clear_error() }
    // OpenSSL reports a lack of memory like any other error, or not at all. But malloc then sets errno, so
    // errno is cleared here and checked below.
    cs_forget_errno()
    let made = body()
    return cs_errno() == ENOMEM ? nil : made
  }

  // MARK: PEM

  /// The purpose of the certificates: trusted roots, or our own certificate with its chain.
  private enum Use {
    case root(OpaquePointer)
    case own
  }

  /// Uses a certificate for `purpose`. `index`: its position in the PEM text. False: OpenSSL refuses it.
  private func use(_ certificate: OpaquePointer, _ index: Int, _ purpose: Use) -> Bool {
    switch purpose {
    case .root(let store): X509_STORE_add_cert(store, certificate) == 1
    case .own:
      index == 0
        ? SSL_CTX_use_certificate(handle, certificate) == 1
        : penstock_ssl_ctx_add_chain(handle, certificate) == 1
    }
  }

  /// Uses each certificate of a PEM text. The text must have at least one certificate, and all must parse.
  private func eachCertificate(_ pem: ByteView, field: StaticString, _ purpose: Use) -> SetupFailure? {
    guard let count = Int32(exactly: pem.count), count > 0, let bio = BIO_new_mem_buf(pem.baseAddress, count)
    else {
      return SetupFailure(field, "no certificate in PEM form")
    }
    defer { BIO_free(bio) }
    var index = 0
    while true {
      var certificate = X509_new_ex(TLSContext.library(), nil)
      guard certificate != nil else { return .noMemory }
      defer { X509_free(certificate) }
      ERR_clear_error()
      guard PEM_read_bio_X509(bio, &certificate, { _, _, _, _ in 0 }, nil) != nil, let read = certificate
      else {
        let isEnd = penstock_error_is_pem_end(ERR_peek_last_error()) == 1
        if isEnd && index > 0 {
          ERR_clear_error()
          return nil
        }
        if isEnd { return SetupFailure(field, TLSContext.reason("no certificate in PEM form")) }
        let text = ByteBuffer().say("certificate ").say(index + 1).say(" does not parse")
        return SetupFailure(field, TLSContext.reason(text))
      }
      guard use(read, index, purpose) else {
        let text = ByteBuffer().say("certificate ").say(index + 1).say(" cannot be used")
        return SetupFailure(field, TLSContext.reason(text))
      }
      index += 1
    }
  }

  /// The failure for a file that could not be read. A lack of descriptors or memory counts as a failure of
  /// the system, and not of the option. The text does not quote the path, because the user may have given a
  /// private key instead of a path by mistake.
  private static func unreadable(
    _ field: StaticString, _ file: StaticString, _ code: Int32
  ) -> SetupFailure {
    unusable(field, ByteBuffer().say("cannot read ").say(file), code)
  }

  private static func unusable(_ field: StaticString, _ words: StaticString, _ code: Int32) -> SetupFailure {
    unusable(field, ByteBuffer().say(words), code)
  }

  private static func unusable(_ field: StaticString, _ words: ByteBuffer, _ code: Int32) -> SetupFailure {
    let text = words.say(": ").say(errno: code)
    let isSystem = code == EMFILE || code == ENFILE || code == ENOMEM || code == EIO || code == ESTALE
    return SetupFailure(field, text, isSystem ? .system : .option)
  }

  /// Returns the text `words`, followed by OpenSSL's own reason, if there is one. Empties OpenSSL's error
  /// queue.
  public static func reason(_ words: StaticString) -> ByteBuffer { reason(ByteBuffer().say(words)) }

  public static func reason(_ text: ByteBuffer) -> ByteBuffer {
    let error = ERR_peek_last_error()
    if error != 0, penstock_error_is_pem_end(error) == 0, let words = ERR_reason_error_string(error) {
      text.say(" (").say(cString: words).say(")")
    }
    ERR_clear_error()
    return text
  }
}
