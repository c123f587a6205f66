import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockNames
import PenstockLoop
import PenstockLink
import PenstockHTTP

/// An event of a channel, for interceptors with an `on_connection` callback. An event does not change once it
/// was reported.
public final class ConnectionNews {
  /// The kind of an event. The raw values are the constants of the C header.
  public enum Kind: Int32, Sendable {
    /// The channel begins to look up the addresses of its target.
    case resolving = 1
    /// The look-up of the target's name has failed; `words` has the reason.
    case unresolved = 2
    case connecting = 3
    /// The TLS handshake is done; `security` has its results.
    case secured = 4
    case ready = 5
    /// The connection accepts no new calls. `words` has the reason, if the peer has given one.
    case draining = 6
    /// A connection that was ready has closed.
    case lost = 7
    /// An attempt to connect has failed, or the connection could not be used. The next attempt begins after
    /// `milliseconds`.
    case backoff = 8
    /// A connection with calls has received no byte for `milliseconds`.
    case silent = 9
    /// The channel or the server can't apply a part of the service config. `words` has that part and the
    /// consequence.
    case ignored = 10
    /// The health check (grpc.health.v1) has found that the server serves.
    case healthy = 11
    /// The health check (grpc.health.v1) has found that the server does not serve, or has failed. `words` has
    /// the reason. The server gets no calls.
    case unhealthy = 12
    /// The addresses of the target's name are known; `words` has their number.
    case resolved = 13
    /// The channel has become idle: it closes its connections, and connects again for the next call.
    case idle = 14
    /// No address can be reached: calls fail, or wait if they may. `words` has the reasons.
    case unreachable = 15
    /// The service config demands another load balancing policy, whose name `words` has.
    case policy = 16
    /// A call is sent again by the retry policy of its method, after `milliseconds`. `words` has the status.
    case retry = 17
    /// A call would be sent again, but most requests have failed lately (gRFC A6, "retryThrottling").
    case throttled = 18
    /// Outlier detection has ejected the address: it gets no calls.
    case ejected = 19
    /// The address that outlier detection had ejected gets calls again.
    case restored = 20
    /// A callback has taken `milliseconds`. `cause` names it.
    case slowCallback = 21
    /// Files with certificates, a key or revocations have changed, and later connections use them. `words`
    /// names the files.
    case tlsReloaded = 22
    /// Such a file has changed, but can't be used, so later connections use what was read before. `words`
    /// names the file and the reason.
    case tlsKept = 23
  }

  public enum Level: Int32, Sendable { case debug, info, warning, error }

  /// The call that an event is about.
  public struct Cause {
    public let call: UInt64
    /// The method's path, followed by a NUL.
    public let path: ByteBuffer
    /// The callback that was slow, of the interceptor with this registration's number, or of the call's own
    /// user or the picker if the number is 0; nil: the event is not about a callback.
    public let callback: (interceptor: UInt64, event: EventKind)?
  }

  public let kind: Kind
  /// When it happened, in milliseconds since 1970.
  public let time: UInt64
  /// The address of the server. nil: the event is about the look-up of the target's name, not about one
  /// address.
  public let address: ByteBuffer?
  public let words: ByteBuffer?
  public let milliseconds: UInt64
  public let security: SecurityFacts?
  /// The known facts about the connection, with `ready`.
  public let connection: ConnectionFacts?
  public let cause: Cause?
  fileprivate var next: ConnectionNews?

  fileprivate init(
    _ kind: Kind, at time: UInt64, _ address: ByteBuffer?, _ words: ByteBuffer?, _ milliseconds: UInt64,
    _ security: SecurityFacts?, _ connection: ConnectionFacts?, _ cause: Cause?
  ) {
    self.kind = kind
    self.time = time
    self.address = address
    self.words = words
    self.milliseconds = milliseconds
    self.security = security
    self.connection = connection
    self.cause = cause
  }
}

extension ConnectionNews.Kind {
  public var name: StaticString {
    switch self {
    case .resolving: "resolving"
    case .unresolved: "unresolved"
    case .connecting: "connecting"
    case .secured: "secured"
    case .ready: "ready"
    case .draining: "draining"
    case .lost: "lost"
    case .backoff: "backoff"
    case .silent: "silent"
    case .ignored: "ignored"
    case .healthy: "healthy"
    case .unhealthy: "unhealthy"
    case .resolved: "resolved"
    case .idle: "idle"
    case .unreachable: "unreachable"
    case .policy: "policy"
    case .retry: "retry"
    case .throttled: "throttled"
    case .ejected: "ejected"
    case .restored: "restored"
    case .slowCallback: "slow_callback"
    case .tlsReloaded: "tls_reloaded"
    case .tlsKept: "tls_kept"
    }
  }

  /// How much an operator has to mind: debug and info are the normal course, a warning may explain calls that
  /// fail or are slow, and with an error all calls fail.
  public var level: ConnectionNews.Level {
    switch self {
    case .resolving, .resolved, .connecting, .secured, .idle, .retry: .debug
    case .ready, .draining, .lost, .healthy, .restored, .policy, .tlsReloaded: .info
    case .backoff, .silent, .ignored, .unhealthy, .throttled, .ejected, .slowCallback, .tlsKept: .warning
    case .unresolved, .unreachable: .error
    }
  }
}

/// The listeners to a channel's connection events. Driving thread only. This is a class, so that a layer
/// above can define the listeners, and how they are called, in a subclass.
open class NewsListeners {
  public init() {}

  /// Whether there is at least one listener.
  open var isAnybody: Bool { mustOverride(false) }
  /// Reports one event to all listeners. This runs user code.
  open func tell(_ news: ConnectionNews) { mustOverride(()) }
}

/// The events that were not yet reported to listeners, oldest first.
struct NewsQueue {
  private var first: ConnectionNews?
  private var last: ConnectionNews?

  mutating func append(_ news: ConnectionNews) {
    if let last { last.next = news } else { first = news }
    last = news
  }

  mutating func next() -> ConnectionNews? {
    let news = first
    first = news?.next.take()
    if first == nil { last = nil }
    return news
  }
}

extension ChannelCore {
  /// Queues an event. It is reported in the same turn, after the channel's present work, because a listener
  /// may close the channel or make a call.
  public func note(
    _ kind: ConnectionNews.Kind, _ address: SocketAddress? = nil, _ words: ByteBuffer? = nil,
    milliseconds: UInt64 = 0, _ security: SecurityFacts? = nil, _ connection: ConnectionFacts? = nil,
    cause: ConnectionNews.Cause? = nil
  ) {
    guard let listeners, listeners.isAnybody else { return }
    let text = address.map { ByteBuffer().say($0.text()) }
    let time = runtime.platform.wallClock() / 1_000_000
    news.append(ConnectionNews(kind, at: time, text, words, milliseconds, security, connection, cause))
    if closedBecause == nil { work.schedule(self) }
  }

  func tellNews() {
    while let one = news.next() {
      listeners?.tell(one)
      runtime.mark.isStale = true
    }
  }

  /// Reads the files of TLS again if they have changed. Called before a new connection.
  func renewCertificates() {
    switch destination.tls?.look() {
    case nil, .unchanged: break
    case .renewed(let words): note(.tlsReloaded, nil, words)
    case .kept(let words): note(.tlsKept, nil, words)
    }
  }

  /// Queues the event that a callback was slow.
  func note(_ slow: CallbackTimes.Slow) {
    note(
      .slowCallback, milliseconds: slow.nanoseconds / 1_000_000,
      cause: ConnectionNews.Cause(
        call: slow.call, path: slow.path, callback: (slow.interceptor, slow.event)))
  }

  /// Queues the event that `call` is sent again after `wait` nanoseconds, or is not because retries are
  /// throttled (nil). `status`: nil if no attempt of a hedged call has failed yet.
  func noteRetry(of call: Call, after status: Status?, in wait: UInt64?) {
    let words = ByteBuffer()
    if let status {
      words.say(status.code.name).say(": ").say(status.message)
    } else {
      words.say("there is no answer yet")
    }
    note(
      wait == nil ? .throttled : .retry, nil, words, milliseconds: (wait ?? 0) / 1_000_000,
      cause: ConnectionNews.Cause(call: call.id, path: call.request.firstPath, callback: nil))
  }

  /// Queues an event for each part of the service config that the channel can't apply.
  func noteIgnored() {
    if destination.service.balancing.policy == .weightedRoundRobin {
      noteIgnored(
        "weighted_round_robin: servers are not asked for reports of their load, so all weights are equal")
    }
    let ignored = destination.service.ignored
    if ignored.hedgingPolicy { noteIgnored("hedgingPolicy: only the ready-made interceptor hedges calls") }
  }

  private func noteIgnored(_ words: StaticString) { note(.ignored, nil, ByteBuffer().say(words)) }
}
