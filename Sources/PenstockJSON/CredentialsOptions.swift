import PenstockCall
import PenstockReady
import PenstockWire

// The options of credentials.h, in a table each; Options.swift says how a table is written.

// ---- penstock_ready_jwt: credentials.h ----

public func read(_ reader: JSONReader, into options: inout SignedToken.Options) -> Failure? {
  var scheme = ByteBuffer()
  _ = scheme.append("Bearer")
  _ = options.bearer.header.append("authorization")
  let failure = reader.members { key, option in
    switch key {
    /// The path of the private key in PEM form. This or "service_account_file" is required. Default: none.
    case "key_file": option.path { options.signer.keyFile = $0 }
    /// The path of a service account's JSON, which has a key and names the issuer. Default: none.
    case "service_account_file": option.path { options.signer.accountFile = $0 }
    /// The name of the key ("kid"). Default: that of the service account, or none.
    case "key_id": option.string { options.signer.keyID = $0 }
    /// The issuer ("iss"), which is required with "key_file". Default: the service account.
    case "issuer": option.string { options.signer.issuer = $0 }
    /// The subject ("sub"). Default: the issuer.
    case "subject": option.string { options.signer.subject = $0 }
    /// The server for which the token is ("aud"). This or "scope" is required. Default: none.
    case "audience": option.string { options.signer.audience = $0 }
    /// The rights that the token gives ("scope"), in words with spaces between. Default: none.
    case "scope": option.string { options.signer.scope = $0 }
    /// The lifetime of a token.
    case "lifetime_ms": option.milliseconds(1000...86_400_000) { options.signer.lifetime = $0 }
    /// The header in which the token is sent. Default: "authorization".
    case "header": option.textHeaderName { options.bearer.header = $0 }
    /// The word before the token; empty: no word. Default: "Bearer".
    case "scheme": option.ascii { scheme = $0 }
    /// How long before a token expires the next one is signed, but at most half of the token's lifetime.
    case "refresh_early_ms": option.milliseconds(0...86_400_000) { options.bearer.refreshEarly = $0 }
    /// How many bytes of a call's request messages are kept. A call that has sent more is not sent again with
    /// a new token.
    case "replay_bytes": option.bytes { options.bearer.replayBytes = $0 }
    /// Whether the token may be sent without TLS.
    case "allow_cleartext": option.bool { options.bearer.allowsCleartext = $0 }
    default: option.unknown
    }
  }
  if let failure = failure ?? checkKey(reader, options.signer) { return failure }
  if options.signer.accountFile.isEmpty, options.signer.issuer.isEmpty { return reader.misses("issuer") }
  if options.signer.audience.isEmpty, options.signer.scope.isEmpty { return reader.misses("audience") }
  if !scheme.isEmpty { _ = scheme.append(" ") }
  options.bearer.prefix = scheme
  return nil
}

// ---- penstock_ready_oauth2: credentials.h ----

public func read(_ reader: JSONReader, into options: inout TokenExchange.Options) -> Failure? {
  _ = options.bearer.header.append("authorization")
  _ = options.bearer.prefix.append("Bearer ")
  var hasGrant = false
  let failure = reader.members { key, option in
    switch key {
    /// The thing that is exchanged for a token: the client's name and secret, a refresh token, or a token that is signed here.
    /// Default: none, it is required.
    case "grant":
      option.choice("client_credentials refresh_token jwt_bearer") {
        hasGrant = true
        options.grant = TokenExchange.Grant(rawValue: $0) ?? .clientCredentials
      }
    /// The path of the token server's URL, such as "/oauth2/token". Default: none, it is required.
    case "token_path": option.urlPath { options.path = $0 }
    /// The client's name, which the grant "client_credentials" needs. Default: none.
    case "client_id": option.string { options.clientID = $0 }
    /// The client's secret. Default: none.
    case "client_secret": option.string { options.clientSecret = $0 }
    /// How the client's name and secret are sent: by HTTP's basic authentication, or in the form.
    case "client_authentication": option.choice("basic form") { options.hasSecretInForm = $0 == 1 }
    /// The rights that the token is to give, in words with spaces between. Default: the server decides.
    case "scope": option.string { options.scope = $0 }
    /// The server for which the token is, for token servers that ask for it. Default: none.
    case "audience": option.string { options.audience = $0 }
    /// The first refresh token, which the grant of this name needs. If the server gives another one, that is used next.
    /// Default: none.
    case "refresh_token": option.string { options.refreshToken = $0 }
    /// How a token is signed here: an object with the options below. It is what the grant "jwt_bearer" exchanges; with the
    /// other grants it proves who the client is, in place of a secret. Default: none.
    case "jwt": readJWT(option) { options.signer = $0 }
    /// The lifetime of a token if the server does not say it.
    case "lifetime_ms": option.milliseconds(1000...86_400_000) { options.lifetime = $0 }
    /// How long before a token expires the next one is requested, but at most half of the token's lifetime.
    /// The old one is used meanwhile.
    case "refresh_early_ms": option.milliseconds(0...86_400_000) { options.bearer.refreshEarly = $0 }
    /// How long a call waits for a token, and a request for its answer; 0: without limit.
    case "refresh_timeout_ms": option.milliseconds(0...86_400_000) { options.bearer.refreshTimeout = $0 }
    /// How many bytes of a call's request messages are kept. A call that has sent more is not sent again with
    /// a new token.
    case "replay_bytes": option.bytes { options.bearer.replayBytes = $0 }
    /// Whether secrets and tokens may be sent without TLS.
    case "allow_cleartext": option.bool { options.bearer.allowsCleartext = $0 }
    default: option.unknown
    }
  }
  if let failure { return failure }
  if !hasGrant { return reader.misses("grant") }
  if options.path.isEmpty { return reader.misses("token_path") }
  if !options.clientSecret.isEmpty, options.clientID.isEmpty { return reader.misses("client_id") }
  switch options.grant {
  case .clientCredentials: if options.clientID.isEmpty { return reader.misses("client_id") }
  case .refreshToken: if options.refreshToken.isEmpty { return reader.misses("refresh_token") }
  case .jwtBearer: if options.signer == nil { return reader.misses("jwt") }
  }
  guard let signer = options.signer, let jwt = reader.member("jwt") else { return nil }
  if options.grant != .jwtBearer, !options.clientSecret.isEmpty {
    return jwt.fail(because: ("\"client_secret\" says already who the client is" as StaticString).bytes)
  }
  if signer.accountFile.isEmpty, signer.issuer.isEmpty, options.clientID.isEmpty {
    return jwt.misses("issuer")
  }
  return nil
}

// ---- "jwt" of penstock_ready_oauth2: credentials.h ----

private func readJWT(_ reader: JSONReader, _ into: (TokenSigner.Options) -> Void) -> Failure? {
  var signer = TokenSigner.Options()
  signer.lifetime = 300_000_000_000
  let failure = reader.members { key, option in
    switch key {
    /// The path of the private key in PEM form. This or "service_account_file" is required. Default: none.
    case "key_file": option.path { signer.keyFile = $0 }
    /// The path of a service account's JSON, which has a key and names the issuer. Default: none.
    case "service_account_file": option.path { signer.accountFile = $0 }
    /// The name of the key ("kid"). Default: that of the service account, or none.
    case "key_id": option.string { signer.keyID = $0 }
    /// The issuer ("iss"). Default: the service account, or the client's name.
    case "issuer": option.string { signer.issuer = $0 }
    /// The subject ("sub"). Default: the issuer; none if a service account asks for itself.
    case "subject": option.string { signer.subject = $0 }
    /// The token server ("aud"), which is required with "key_file". Default: that of the service account.
    case "audience": option.string { signer.audience = $0 }
    /// The rights that the token is to give ("scope"), in words with spaces between. Default: none.
    case "scope": option.string { signer.scope = $0 }
    /// The lifetime of the signed token. Default: 300000.
    case "lifetime_ms": option.milliseconds(1000...86_400_000) { signer.lifetime = $0 }
    default: option.unknown
    }
  }
  if let failure = failure ?? checkKey(reader, signer) { return failure }
  if signer.accountFile.isEmpty, signer.audience.isEmpty { return reader.misses("audience") }
  into(signer)
  return nil
}

/// Checks that one file with a key is named.
private func checkKey(_ reader: JSONReader, _ signer: TokenSigner.Options) -> Failure? {
  if signer.keyFile.isEmpty == signer.accountFile.isEmpty {
    return signer.keyFile.isEmpty
      ? reader.misses("key_file")
      : reader.fail(
        because: ("\"key_file\" and \"service_account_file\" exclude each other" as StaticString).bytes)
  }
  return nil
}

extension JSONReader {
  fileprivate func misses(_ key: StaticString) -> Failure {
    fail(because: ("\"" as StaticString).bytes, key.bytes, ("\" is missing" as StaticString).bytes)
  }

  /// Reads the path of a file, and passes it on with a NUL at its end.
  fileprivate func path(_ into: (ByteBuffer) -> Void) -> Failure? {
    guard let string, !string.isEmpty else {
      return fail("the path of a file", hasType: self.string != nil)
    }
    return terminated(string, into)
  }

  /// Reads the path of a URL, perhaps with a query, and passes it on with a NUL at its end.
  fileprivate func urlPath(_ into: (ByteBuffer) -> Void) -> Failure? {
    guard let string, string.first == 0x2F, string.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != 0x23 }) else {
      return fail("the path of a URL, such as \"/token\"", hasType: self.string != nil)
    }
    return terminated(string, into)
  }

  private func terminated(_ text: ByteView, _ into: (ByteBuffer) -> Void) -> Failure? {
    guard let copied = ByteBuffer(copying: text), copied.append(byte: 0) else {
      return Failure(.noMemory, "no memory")
    }
    into(copied)
    return nil
  }
}
