import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockLink
import PenstockHTTP
import PenstockClient
import PenstockLoop
import PenstockTickets

/// Adds a bearer token to calls, and fetches it when it is needed. One request to the user's source of tokens
/// serves all calls that wait for a token. A call whose token the server has refused is sent again once.
/// `TokenStore` keeps the token; this class adds it to calls.
public final class BearerToken: ReadyInterceptor {
  public struct Options {
    /// The header's name, in lower case.
    public var header = ByteBuffer()
    /// The text before the token: the scheme, such as "Bearer", and a space.
    public var prefix = ByteBuffer()
    /// How long before a token expires the next one is requested, in nanoseconds.
    public var refreshEarly: UInt64 = 60_000_000_000
    /// How long a call waits for a token, in nanoseconds; 0: without limit.
    public var refreshTimeout: UInt64 = 30_000_000_000
    public var replayBytes = 65536
    public var allowsCleartext = false

    public init() {}
  }

  private let store: TokenStore

  public init(_ options: Options, _ source: @escaping TokenStore.Source, _ userData: UserData) {
    store = TokenStore(options, source, userData)
    var callbacks = Registration.Callbacks()
    callbacks.create = { _, userData, out in
      keep(TokenUse(this(userData, BearerToken.self).store), out)
    }
    callbacks.onStart = { handle, state in
      let (hop, use) = behind(handle, state, TokenUse.self)
      let options = use.store.options
      guard let metadata = hop.metadata, metadata.index(of: options.header.view) == nil else { return next }
      guard use.isPrivate(hop) else {
        let words: StaticString =
          "a bearer token is sent over TLS only, and the channel has no TLS (see \"allow_cleartext\")"
        _ = hop.finish(Status(.unauthenticated, words))
        return next
      }
      // A hop below may redirect the call to another channel. That channel must not be cleartext either.
      if !options.allowsCleartext { _ = hop.changeSettings { $0.privacy = .local } }
      return BearerToken.supply(use, metadata, hop, or: .next)
    }
    callbacks.onStatus = { handle, state in
      let (hop, use) = behind(handle, state, TokenUse.self)
      guard let status = hop.status, status.code == .unauthenticated, !status.isLocal, use.isPrivate(hop),
        use.store.refuse(use),
        hop.canRestart == .ok, let metadata = hop.requestMetadata
      else { return next }
      return BearerToken.supply(use, metadata, hop, or: .restart)
    }
    callbacks.destroy = { _, state in
      let use = this(state, TokenUse.self)
      if use.hasWaited { use.store.leave(use) }
      forget(state, TokenUse.self)
    }
    super.init("bearer_token", callbacks, replayBytes: options.replayBytes)
    TokenRequests.add(store)
  }

  deinit { TokenRequests.remove(store) }

  /// Adds the token to the call and returns `verdict`. If there is no token yet, the call is paused, and its
  /// ticket is later resolved with `verdict`.
  private static func supply(_ use: TokenUse, _ metadata: Metadata, _ hop: Hop, or verdict: Verdict) -> Int32
  {
    let store = use.store
    var (text, request) = store.take(use, 0, by: hop.platform)
    if text == nil {
      let ticket = hop.takeTicket()
      guard ticket != 0 else { return next }
      use.hasWaited = true
      use.metadata = metadata
      use.isRefused = verdict == .restart
      if store.options.refreshTimeout > 0 {
        let end: Call.Resolution =
          use.isRefused ? .verdict(.next) : .finish(Status(.unavailable, "no token came in time"))
        _ = Tickets.resolveAfter(ticket, end, nanoseconds: store.options.refreshTimeout)
      }
      (text, request) = store.take(use, ticket, by: hop.platform)
    }
    if let text, metadata.set(store.options.header.view, text.view) != .ok {
      _ = hop.finish(Status(.resourceExhausted, "no memory for the token"))
    }
    if request != 0 { store.ask(request) }
    return text == nil ? pause : verdict.rawValue
  }
}

/// The facts about one call that the interceptor keeps.
final class TokenUse {
  let store: TokenStore
  /// Whether the call may be in the store's list of waiting calls. Only on the driving thread.
  var hasWaited = false

  // These variables are guarded by the store's lock once the call waits. `number` is the number of the token
  // that was sent; 0: no token was sent.
  var number: UInt64 = 0
  var ticket: UInt64 = 0
  var metadata: Metadata?
  var isRefused = false

  init(_ store: TokenStore) { self.store = store }

  /// Whether a token may be sent on the call's channel: it is not cleartext, or the options allow cleartext.
  func isPrivate(_ hop: Hop) -> Bool { store.options.allowsCleartext || hop.privacy != .cleartext }
}
