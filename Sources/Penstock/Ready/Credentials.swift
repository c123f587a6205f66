internal import CPenstock

/// How the library signs a JSON Web Token (RFC 7519): by RS256 with a key for RSA, by ES256 with one for the curve P-256.
public struct TokenSigning: Sendable, Hashable {
  /// The file with the private key, which is read for each token.
  public enum Key: Sendable, Hashable {
    /// The path of a key in PEM form, without a password.
    case pem(String)
    /// The path of a service account's JSON, which also names the issuer and the key.
    case serviceAccount(String)
  }

  /// The key.
  public var key: Key
  /// The name of the key ("kid"); nil: that of the service account, or none.
  public var keyID: String?
  /// The issuer ("iss"); nil: the service account, or the client's name.
  public var issuer: String?
  /// The subject ("sub"); nil: the issuer.
  public var subject: String?
  /// The server for which the token is ("aud").
  public var audience: String?
  /// The rights that the token gives ("scope"), in words with spaces between.
  public var scope: String?
  /// How long a token is valid; nil: an hour, or five minutes for one that is exchanged.
  public var lifetime: Duration?

  /// Says how tokens are signed.
  public init(_ key: Key, issuer: String? = nil, audience: String? = nil, scope: String? = nil) {
    self.key = key
    self.issuer = issuer
    self.audience = audience
    self.scope = scope
  }

  var text: OptionText {
    var text = OptionText()
    switch key {
    case .pem(let path): text.set("key_file", path)
    case .serviceAccount(let path): text.set("service_account_file", path)
    }
    text.set("key_id", keyID)
    text.set("issuer", issuer)
    text.set("subject", subject)
    text.set("audience", audience)
    text.set("scope", scope)
    text.set("lifetime_ms", lifetime)
    return text
  }
}

/// Sends a token that the library signs, as ``BearerToken`` does. docs/ready.md says more.
public struct SignedToken: Sendable {
  /// The interceptor, to be added to channels and runtimes, which then share the token.
  public let interception: Interception

  /// Makes an interceptor that signs its tokens.
  ///
  /// - Parameters:
  ///   - signing: the key and the claims; the audience or the scope has to be given.
  ///   - options: those of ``BearerToken``, but for the time that calls wait, which has no meaning here.
  /// - Throws: ``PenstockError``: an option that is not allowed, or is missing.
  public init(_ signing: TokenSigning, options: BearerToken.Options = BearerToken.Options())
    throws(PenstockError)
  {
    var text = signing.text
    text.set("header", options.header)
    text.set("scheme", options.scheme)
    text.set("refresh_early_ms", options.refreshEarly)
    text.set("replay_bytes", options.replayBytes)
    text.set("allow_cleartext", options.allowsCleartext)
    interception = Interception(
      try ReadyTable("the signed token") { penstock_ready_jwt(text.finished, $0, &$1) })
  }
}

/// Sends a token that a server of OAuth 2.0 gives, as ``BearerToken`` does. docs/ready.md says more.
public struct OAuth2: Sendable {
  /// The thing that is exchanged for a token.
  public enum Grant: Sendable, Hashable {
    /// The client's name and secret (RFC 6749 section 4.4).
    case clientCredentials
    /// A refresh token (RFC 6749 section 6). If the server gives another one, that is used next.
    case refreshToken(String)
    /// The token that ``Options/signing`` makes (RFC 7523 section 2.1).
    case jwtBearer
  }

  /// The options; one that is nil has the library's default, which docs/ready.md lists.
  public struct Options: Sendable, Hashable {
    /// The client's name.
    public var clientID: String?
    /// The client's secret.
    public var clientSecret: String?
    /// Whether name and secret are sent in the form, instead of by HTTP's basic authentication.
    public var sendsSecretInForm: Bool?
    /// The rights that the token is to give, in words with spaces between.
    public var scope: String?
    /// The server for which the token is, for token servers that ask for it.
    public var audience: String?
    /// How a token is signed here: that of the grant `jwtBearer`, and with the others one in place of a secret.
    public var signing: TokenSigning?
    /// How long a token is used if the server does not say it.
    public var lifetime: Duration?
    /// How long before a token expires the next one is requested.
    public var refreshEarly: Duration?
    /// How long a call waits for a token, and a request for its answer; zero: without limit.
    public var refreshTimeout: Duration?
    /// How many bytes of a call's request messages are kept, to send the call again.
    public var replayBytes: Int?
    /// Whether secrets and tokens may be sent without TLS.
    public var allowsCleartext: Bool?

    /// Makes options with the library's defaults.
    public init(clientID: String? = nil, clientSecret: String? = nil, allowsCleartext: Bool? = nil) {
      self.clientID = clientID
      self.clientSecret = clientSecret
      self.allowsCleartext = allowsCleartext
    }
  }

  /// The interceptor, to be added to channels and runtimes, which then share the token.
  public let interception: Interception

  /// Makes an interceptor that asks a token server.
  ///
  /// - Parameters:
  ///   - server: the channel to the token server, best with the protocol `connect`, with which the server may speak
  ///     HTTP/1.1 or HTTP/2.
  ///   - path: the path of the token server's URL.
  ///   - grant: what is exchanged.
  ///   - options: see ``Options``.
  /// - Throws: ``PenstockError``: an option that is not allowed, or is missing, or a token server without TLS.
  public init(_ server: Channel, path: String, grant: Grant, options: Options = Options())
    throws(PenstockError)
  {
    var text = OptionText()
    switch grant {
    case .clientCredentials: text.set("grant", "client_credentials")
    case .refreshToken(let first):
      text.set("grant", "refresh_token")
      text.set("refresh_token", first)
    case .jwtBearer: text.set("grant", "jwt_bearer")
    }
    text.set("token_path", path)
    text.set("client_id", options.clientID)
    text.set("client_secret", options.clientSecret)
    text.set("client_authentication", options.sendsSecretInForm.map { $0 ? "form" : "basic" })
    text.set("scope", options.scope)
    text.set("audience", options.audience)
    text.set("jwt", options.signing?.text)
    text.set("lifetime_ms", options.lifetime)
    text.set("refresh_early_ms", options.refreshEarly)
    text.set("refresh_timeout_ms", options.refreshTimeout)
    text.set("replay_bytes", options.replayBytes)
    text.set("allow_cleartext", options.allowsCleartext)
    interception = Interception(
      try ReadyTable("the token of OAuth 2.0") {
        penstock_ready_oauth2(text.finished, server.handle.pointer, $0, &$1)
      })
  }
}
