import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockHTTP
import PenstockClient
import PenstockTickets

/// A response cache for unary calls.
///
/// The start is held until the message has come, because the message is a part of the cache's key. Then the
/// interceptor either answers the call itself (TAKE), or lets it go on and keeps the response.
public final class ResponseCache: ReadyInterceptor, @unchecked Sendable {
  public struct Options {
    /// How long a response may be used, in nanoseconds.
    public var timeToLive: UInt64 = 60_000_000_000
    public var maxEntries = 1024
    public var maxBytes = 16 << 20
    /// The names, in lower case, of the metadata whose values are a part of the key; nil: "authorization".
    public var metadata: [ByteBuffer]?

    public init() {}
  }

  private let options: Options
  private let lock = Lock()
  private var entries: LeastRecentlyUsed<CachedResponse>

  public init(_ options: Options) {
    self.options = options
    entries = LeastRecentlyUsed(
      maxEntries: options.maxEntries, maxBytes: options.maxBytes, seed: Dice(seed: nil).roll())
    var callbacks = Registration.Callbacks()
    callbacks.create = { _, userData, out in keep(CachedExchange(this(userData, ResponseCache.self)), out)
    }
    callbacks.onStart = { handle, state in
      let (hop, exchange) = behind(handle, state, CachedExchange.self)
      guard let metadata = hop.metadata else { return next }
      let labels = hop.labels
      exchange.key = withExtendedLifetime(labels) {
        CachedResponse.beginKey(hop.path, labels?.subtype, metadata, exchange.cache.options.metadata)
      }
      exchange.ticket = exchange.key == nil ? 0 : hop.takeTicket()
      return exchange.ticket == 0 ? next : hold
    }
    callbacks.onSend = { handle, state in
      let (hop, exchange) = behind(handle, state, CachedExchange.self)
      if exchange.ticket != 0 { exchange.cache.look(exchange, hop) }
      return next
    }
    // If a hop above has dropped the message, the half-close comes without a message before it; then the
    // start, which is held, goes on.
    callbacks.onHalfClose = { _, state in
      ResponseCache.goOn(this(state, CachedExchange.self), .next)
      return next
    }
    callbacks.onDemand = { handle, state in
      let (hop, exchange) = behind(handle, state, CachedExchange.self)
      if let hit = exchange.hit { ResponseCache.deliver(hit, exchange, hop) }
      return next
    }
    callbacks.onHeaders = { handle, state in
      let (hop, exchange) = behind(handle, state, CachedExchange.self)
      if exchange.isMiss { exchange.seen.headers = hop.metadata?.copy() }
      return next
    }
    callbacks.onReceive = { handle, state in
      let (hop, exchange) = behind(handle, state, CachedExchange.self)
      if exchange.isMiss { exchange.seen.message = hop.message.flatMap { ByteBuffer(copying: $0.view) } }
      return next
    }
    callbacks.onStatus = { handle, state in
      let (hop, exchange) = behind(handle, state, CachedExchange.self)
      if let status = hop.status, status.code == .ok {
        exchange.cache.remember(exchange, status, at: hop.platform.clock())
      }
      return next
    }
    callbacks.destroy = { _, state in forget(state, CachedExchange.self) }
    super.init("response_cache", callbacks, kinds: 1 << UInt32(CallKind.unary.rawValue))
  }

  private static func goOn(_ exchange: CachedExchange, _ verdict: Verdict) {
    guard exchange.ticket != 0 else { return }
    _ = Tickets.resolve(exchange.ticket, .verdict(verdict))
    exchange.ticket = 0
  }

  private func look(_ exchange: CachedExchange, _ hop: Hop) {
    guard let key = exchange.key, let message = hop.message, key.append(message.view) else {
      ResponseCache.goOn(exchange, .next)
      return
    }
    let now = hop.platform.clock()
    var gone: [CachedResponse] = []
    lock.lock()
    var found = entries.find(key.view)
    if let old = found, old.expiresAt <= now {
      entries.remove(key.view, gone: &gone)
      found = nil
    }
    lock.unlock()
    withExtendedLifetime(gone) {}
    exchange.hit = found
    exchange.isMiss = found == nil
    if found != nil {
      let value = UserData(UnsafeMutableRawPointer(mutating: ("hit" as StaticString).utf8Start), nil)
      _ = hop.setValue(("penstock.cache" as StaticString).bytes, value)
    }
    ResponseCache.goOn(exchange, found == nil ? .next : .take)
  }

  /// Answers the call with a copy of the kept response. It has to be a copy, because the hops above may
  /// change it.
  private static func deliver(_ hit: CachedResponse, _ exchange: CachedExchange, _ hop: Hop) {
    exchange.hit = nil
    if let headers = hit.headers?.copy() { _ = hop.deliverHeaders(headers) }
    let message = hit.message.flatMap { ByteBuffer(copying: $0.view) }
    if let message, hop.injectInbound(message) == .ok, let status = hit.status?.copy() {
      _ = hop.deliverStatus(status)
    } else {
      _ = hop.deliverStatus(Status(.resourceExhausted, "no memory for the cached response"))
    }
  }

  private func remember(_ exchange: CachedExchange, _ status: Status, at now: UInt64) {
    guard exchange.isMiss, let key = exchange.key, exchange.seen.message != nil else { return }
    exchange.isMiss = false
    let response = exchange.seen
    response.status = status.copy()
    response.expiresAt = now + options.timeToLive
    var gone: [CachedResponse] = []
    lock.lock()
    entries.insert(key, response, bytes: key.count + response.bytes, gone: &gone)
    lock.unlock()
    withExtendedLifetime(gone) {}
  }
}
