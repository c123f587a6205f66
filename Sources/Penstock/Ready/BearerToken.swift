internal import CPenstock

/// Sends a bearer token, which it gets from the program, keeps, and renews before it expires. docs/ready.md says more.
///
/// Calls that start while there is no token wait; one request to the source serves them all. A call that ends with
/// UNAUTHENTICATED is sent again once, with the next token. On a channel without TLS no token is sent, and the call
/// ends with UNAUTHENTICATED, unless ``Options/allowsCleartext`` is true.
public struct BearerToken: Sendable {
  /// A token, and how long it is valid.
  public struct Token: Sendable, Hashable {
    /// The text of the token.
    public var value: String
    /// The time in which it expires; nil: it is valid until a server refuses it.
    public var lifetime: Duration?

    /// Makes a token.
    public init(_ value: String, lifetime: Duration? = nil) {
      self.value = value
      self.lifetime = lifetime
    }
  }

  /// The options; one that is nil has the library's default, which docs/ready.md lists.
  public struct Options: Sendable, Hashable {
    /// The header in which the token is sent.
    public var header: String?
    /// The word before the token; empty: none.
    public var scheme: String?
    /// How long before a token expires the next one is asked for.
    public var refreshEarly: Duration?
    /// How long a call waits for a token; zero: without limit.
    public var refreshTimeout: Duration?
    /// How many bytes of request messages are kept, so that a call can be sent again.
    public var replayBytes: Int?
    /// Whether the token may be sent without TLS.
    public var allowsCleartext: Bool?

    /// Makes options with the library's defaults.
    public init(allowsCleartext: Bool? = nil) { self.allowsCleartext = allowsCleartext }

    var text: OptionText {
      var text = OptionText()
      text.set("header", header)
      text.set("scheme", scheme)
      text.set("refresh_early_ms", refreshEarly)
      text.set("refresh_timeout_ms", refreshTimeout)
      text.set("replay_bytes", replayBytes)
      text.set("allow_cleartext", allowsCleartext)
      return text
    }
  }

  /// Gets a token; `refused` is the one that the server has refused and that this one is to replace.
  ///
  /// It runs in a task of its own. An ``RPCError`` ends the calls that wait with its code and message; another
  /// error ends them with UNAVAILABLE.
  public typealias Source = @Sendable (_ refused: String?) async throws -> Token

  /// The interceptor, to be added to channels and runtimes, which then share the token.
  public let interception: Interception

  /// Makes an interceptor that gets its tokens from `source`.
  ///
  /// - Throws: ``PenstockError``: an option that is not allowed.
  public init(_ options: Options = Options(), source: @escaping Source) throws(PenstockError) {
    interception = Interception(
      try ReadyTable("the bearer token") { table, error in
        penstock_ready_bearer_token(
          options.text.finished,
          { request, refused, data in
            guard let source = KeptFunction<Source>.of(data) else { return }
            let refused = refused.map { String(cString: $0) }
            Task { await BearerToken.answer(request, source, refused) }
          }, KeptFunction<Source>.keep(source), { KeptFunction<Source>.release($0) }, table, &error)
      })
  }

  private static func answer(_ request: penstock_token_request, _ source: Source, _ refused: String?) async {
    do {
      let token = try await source(refused)
      let lifetime = token.lifetime.map { max(0, $0.milliseconds) } ?? -1
      // C would take the text up to a NUL for the token.
      if token.value.utf8.contains(0)
        || penstock_token_complete(request, token.value, lifetime) == PENSTOCK_E_INVALID_ARGUMENT
      {
        fail(request, RPCError(.internal, "the token has characters that a header can't have"))
      }
    } catch let error as RPCError {
      fail(request, error)
    } catch {
      fail(request, RPCError(.unavailable, "there is no token: \(error)"))
    }
  }

  private static func fail(_ request: penstock_token_request, _ error: RPCError) {
    let code = error.code == .ok ? Status.Code.internal : error.code
    penstock_token_fail(request, code.rawValue, error.message)
  }
}

/// Sends the token that stands in a file, as ``BearerToken`` does. The file is replaced from time to time, such as that
/// of a service account in a pod of Kubernetes. docs/ready.md says more.
public struct TokenFile: Sendable {
  /// The interceptor, to be added to channels and runtimes, which then share the token.
  public let interception: Interception

  /// Makes an interceptor that reads its tokens from `file`.
  ///
  /// - Parameters:
  ///   - file: the path.
  ///   - reread: how old a token may be before the file is read again; nil: a minute. If it can't be read then, the old
  ///     token is used for as long again.
  ///   - options: those of ``BearerToken``, but for the two about refreshing, which have no meaning here.
  /// - Throws: ``PenstockError``: an option that is not allowed.
  public init(_ file: String, reread: Duration? = nil, options: BearerToken.Options = BearerToken.Options())
    throws(PenstockError)
  {
    var text = OptionText()
    text.set("file", file)
    text.set("reread_ms", reread)
    text.set("header", options.header)
    text.set("scheme", options.scheme)
    text.set("replay_bytes", options.replayBytes)
    text.set("allow_cleartext", options.allowsCleartext)
    interception = Interception(
      try ReadyTable("the token file") { penstock_ready_token_file(text.finished, $0, &$1) })
  }
}
