import PenstockCall
import PenstockChannel
import PenstockClient
import PenstockLoop
import PenstockTransport
import PenstockWire

/// The source of a `BearerToken` whose tokens a server gives by OAuth 2.0: by client credentials (RFC 6749 section 4.4), by
/// a refresh token (6), or by a token that this library signs (RFC 7523 section 2.1).
///
/// Each request is a form that is posted on a channel of the user's. After a failed answer no request is sent for a
/// while, and calls get the failure at once. No error quotes a secret.
public final class TokenExchange: @unchecked Sendable {
  public enum Grant: Int {
    case clientCredentials, refreshToken, jwtBearer
  }

  public struct Options {
    public var bearer = BearerToken.Options()
    public var grant = Grant.clientCredentials
    /// The path of the token server's URL, with a NUL at its end.
    public var path = ByteBuffer()
    public var clientID = ByteBuffer()
    public var clientSecret = ByteBuffer()
    /// Whether the client's id and secret are sent in the form, instead of by HTTP's basic authentication.
    public var hasSecretInForm = false
    public var scope = ByteBuffer()
    public var audience = ByteBuffer()
    public var refreshToken = ByteBuffer()
    /// The lifetime of a token if the answer has none, in nanoseconds.
    public var lifetime: UInt64 = 3_600_000_000_000
    /// How tokens are signed: those of the grant `jwtBearer`, and otherwise those that prove who the client is. nil: there
    /// are none.
    public var signer: TokenSigner.Options?

    public init() {}
  }

  /// The most bytes of an answer.
  private static let most = 65536
  /// The least and the most time without a request after a failed answer, in nanoseconds.
  private static let (shortestRest, longestRest) = (1_000_000_000 as UInt64, 3_600_000_000_000 as UInt64)

  nonisolated(unsafe) private let options: Options
  private let signer: TokenSigner?
  private let server: OtherChannel

  private let lock = Lock()
  /// The token of the grant `refreshToken`: the server may replace it.
  private var refreshToken: ByteBuffer
  /// The last failed answer, and the time at which a request may be sent again, by the channel's clock.
  private var failure: Status?
  private var restsUntil: UInt64 = 0
  /// When the last token came, by the channel's clock, and how many in a row were refused within a second.
  private var obtainedAt: UInt64 = 0
  private var newRefused = 0

  private init(_ options: Options, _ server: OtherChannel) {
    self.options = options
    self.server = server
    refreshToken = options.refreshToken
    signer = options.signer.map { given in
      var own = given
      if own.issuer.isEmpty, own.accountFile.isEmpty { own.issuer = options.clientID }
      return TokenSigner(own, options.grant == .jwtBearer ? .grant : .client)
    }
  }

  /// Makes the interceptor that asks `server` for tokens.
  public static func interceptor(_ options: Options, _ server: ClientChannel) -> BearerToken {
    let exchange = Unmanaged.passRetained(TokenExchange(options, OtherChannel(server))).toOpaque()
    return BearerToken(
      options.bearer,
      { request, refused, exchange in
        this(exchange, TokenExchange.self).ask(request, isRefused: refused != nil)
      },
      UserData(exchange) { forget($0, TokenExchange.self) })
  }

  // MARK: - The request

  /// `isRefused`: the request is to replace a token that a server has refused.
  private func ask(_ request: UInt64, isRefused: Bool) {
    let now = server.channel.clock
    guard !isRefused || mayReplace(now) else {
      return fail(request, .unauthenticated, TokenExchange.words.say("its new tokens are refused, too"))
    }
    if let known = lock.withLock({ now < restsUntil ? failure : nil }) {
      _ = TokenRequests.fail(request, known.copy())
      return
    }
    guard let time = TokenRequests.seconds(of: request) else { return }
    var assertion: ByteBuffer?
    switch signer?.sign(time) {
    case .token(let signed): assertion = signed
    case .failed(let words):
      _ = TokenRequests.fail(request, Status(.unavailable, words: words))
      return
    case .noMemory: return TokenRequests.failForMemory(request)
    case nil: break
    }
    var form = Form()
    let metadata = Metadata()
    let refreshed = lock.withLock { refreshToken }
    guard fill(&form, refreshed, assertion), authenticate(metadata) else {
      return TokenRequests.failForMemory(request)
    }
    let attempt = TokenAttempt(self, request, refreshed, assertion)
    var callbacks = CallCallbacks(Unmanaged.passRetained(attempt).toOpaque()) {
      forget($0, TokenAttempt.self)
    }
    callbacks.table.onReply = { _, reply, pointer in
      guard let reply else { return }
      let attempt = this(pointer, TokenAttempt.self)
      attempt.owner.ended(attempt, Unmanaged<Reply>.fromOpaque(UnsafeRawPointer(reply)).takeUnretainedValue())
    }
    let timeout = options.bearer.refreshTimeout
    let outcome = ClientCall.post(
      form.text, to: options.path, metadata, timeout: timeout > 0 ? timeout : nil, most: TokenExchange.most,
      on: server.channel, callbacks)
    if outcome == .noMemory { return TokenRequests.failForMemory(request) }
    if outcome != .ok {
      fail(request, .unavailable, TokenExchange.words.say("the channel to it has been closed"))
    }
  }

  /// Whether a refused token may be replaced now. A token that is refused within a second is replaced once: a service that
  /// refuses every token would otherwise cost the token server a request for each call.
  private func mayReplace(_ now: UInt64) -> Bool {
    lock.withLock {
      let isNew = now < obtainedAt + TokenExchange.shortestRest
      newRefused = isNew ? newRefused + 1 : 0
      return newRefused < 2
    }
  }

  /// Writes the form. False: no memory.
  private func fill(_ form: inout Form, _ refreshed: ByteBuffer, _ assertion: ByteBuffer?) -> Bool {
    switch options.grant {
    case .clientCredentials: form.add("grant_type", "client_credentials")
    case .refreshToken:
      form.add("grant_type", "refresh_token")
      form.add("refresh_token", refreshed)
    case .jwtBearer:
      form.add("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer")
      if let assertion { form.add("assertion", assertion) }
    }
    form.add("scope", options.scope)
    form.add("audience", options.audience)
    if let assertion, options.grant != .jwtBearer {
      form.add("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
      form.add("client_assertion", assertion)
    }
    // A client without a secret says its name in the form (RFC 6749 section 3.2.1).
    if options.hasSecretInForm || options.clientSecret.isEmpty {
      form.add("client_id", options.clientID)
      form.add("client_secret", options.clientSecret)
    }
    return form.isComplete
  }

  /// Adds the client's id and secret by HTTP's basic authentication, each encoded as in a form (RFC 6749 section 2.3.1).
  /// False: no memory.
  private func authenticate(_ metadata: Metadata) -> Bool {
    if options.hasSecretInForm || options.clientSecret.isEmpty { return true }
    let value = ByteBuffer()
    guard value.append("Basic "), let pair = basicCredentials,
      withExtendedLifetime(pair, { value.append(pair.view) })
    else { return false }
    return withExtendedLifetime(value) {
      metadata.add(("authorization" as StaticString).bytes, value.view) == .ok
    }
  }

  /// The client's id and secret in base64; nil: no memory.
  private var basicCredentials: ByteBuffer? {
    let pair = ByteBuffer()
    let text = ByteBuffer()
    let isWritten = withExtendedLifetime((options.clientID, options.clientSecret, pair)) {
      PercentCoding.encodeForURL(options.clientID.view, into: pair) && pair.append(byte: 0x3A)
        && PercentCoding.encodeForURL(options.clientSecret.view, into: pair)
        && Base64.encode(pair.view, padded: true, into: text)
    }
    return isWritten ? text : nil
  }

  // MARK: - The answer, on the driving thread of the token server's channel

  fileprivate func ended(_ attempt: TokenAttempt, _ reply: Reply) {
    let status = reply.status
    guard status.code == .ok else {
      let words = TokenExchange.words.say(status.message)
      // If there is no answer, the channel itself waits before it connects again.
      if status.isLocal || status.body == nil && status.code == .unavailable {
        return fail(attempt.request, .unavailable, words)
      }
      if let body = status.body { TokenAnswer(body).say(in: words, hiding: secrets(attempt)) }
      // RESOURCE_EXHAUSTED: the answer is too large, or there is no memory for it.
      let isKept = status.code == .unauthenticated || status.code == .resourceExhausted
      let code = isKept ? status.code : StatusCode.unavailable
      let pause = TokenExchange.pause(status.trailers, now: TokenRequests.seconds(of: attempt.request))
      return rest(attempt.request, Status(code, words: words), pause)
    }
    let answer = TokenAnswer(reply.message ?? ByteBuffer())
    if answer.lacksMemory { return TokenRequests.failForMemory(attempt.request) }
    if let (code, words) = flaw(answer, attempt) {
      return rest(attempt.request, Status(code, words: TokenExchange.words.say(words.view)), 0)
    }
    lock.withLock {
      if !answer.refreshToken.isEmpty { refreshToken = answer.refreshToken }
      failure = nil
      restsUntil = 0
      obtainedAt = server.channel.clock
    }
    let outcome = withExtendedLifetime(answer) {
      TokenRequests.complete(
        attempt.request, answer.token.view, lifetime: answer.lifetime ?? options.lifetime)
    }
    if outcome == .noMemory { TokenRequests.failForMemory(attempt.request) }
    if outcome == .invalidArgument {
      let words = TokenExchange.words.say("\"access_token\" is not visible ASCII")
      rest(attempt.request, Status(.unavailable, words: words), 0)
    }
  }

  /// The reason why an answer with HTTP status 200 gives no token; nil: it does.
  private func flaw(_ answer: TokenAnswer, _ attempt: TokenAttempt) -> (StatusCode, ByteBuffer)? {
    let words = ByteBuffer()
    if !answer.isObject { return (.unavailable, words.say("the answer is not a JSON object")) }
    if answer.token.isEmpty {
      guard answer.error.isEmpty else {
        answer.say(in: words.say("HTTP status 200"), hiding: secrets(attempt))
        return (.unauthenticated, words)
      }
      return (.unavailable, words.say("the answer has no \"access_token\""))
    }
    if equalIgnoringCase(answer.type.view, "bearer") { return nil }
    words.say("\"token_type\" is not \"Bearer\", but \"").say(printable: answer.type.view, limit: 40).say(
      "\"")
    return (.unauthenticated, words)
  }

  /// The texts that a server must not bring into an error: the secrets of the request, and the forms in which it had
  /// them.
  private func secrets(_ attempt: TokenAttempt) -> [ByteBuffer] {
    var all: [ByteBuffer] = []
    for secret in [options.clientSecret, attempt.refreshToken, attempt.assertion ?? ByteBuffer()]
    where !secret.isEmpty {
      let encoded = ByteBuffer()
      let isWhole = withExtendedLifetime(secret) { PercentCoding.encodeForURL(secret.view, into: encoded) }
      all.append(secret)
      if isWhole { all.append(encoded) }
    }
    if !options.clientSecret.isEmpty, let pair = basicCredentials { all.append(pair) }
    return all
  }

  /// Answers the request with a failure, which the next requests get, too, for `pause` nanoseconds, within limits.
  private func rest(_ request: UInt64, _ status: Status, _ pause: UInt64) {
    let time = min(max(pause, TokenExchange.shortestRest), TokenExchange.longestRest)
    let until = server.channel.clock + time
    lock.withLock {
      failure = status.copy()
      restsUntil = until
    }
    _ = TokenRequests.fail(request, status)
  }

  private func fail(_ request: UInt64, _ code: StatusCode, _ words: ByteBuffer) {
    _ = TokenRequests.fail(request, Status(code, words: words))
  }

  private static var words: ByteBuffer { ByteBuffer().say("no token from the token server: ") }

  /// The value of Retry-After (RFC 9110 section 10.2.3) in nanoseconds; 0: there is none. `now`: the seconds since 1970.
  private static func pause(_ fields: Metadata, now: UInt64?) -> UInt64 {
    guard let index = fields.index(of: ("retry-after" as StaticString).bytes) else { return 0 }
    let value = fields.value(at: index)
    var scanner = JSONScanner(value)
    if let seconds = scanner.wholeNumber(most: 1_000_000), scanner.isAtEnd { return seconds * 1_000_000_000 }
    guard let now, let date = HTTPDate.seconds(value), date > now else { return 0 }
    return min(date - now, 1_000_000) * 1_000_000_000
  }
}

/// One request for a token. Its call keeps it until its end.
private final class TokenAttempt {
  let owner: TokenExchange
  let request: UInt64
  /// The secrets that the request has.
  let refreshToken: ByteBuffer
  let assertion: ByteBuffer?

  init(_ owner: TokenExchange, _ request: UInt64, _ refreshToken: ByteBuffer, _ assertion: ByteBuffer?) {
    self.owner = owner
    self.request = request
    self.refreshToken = refreshToken
    self.assertion = assertion
  }
}
