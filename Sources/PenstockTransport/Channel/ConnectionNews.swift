import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockNames
import PenstockLoop
import PenstockHTTP

/// An event of a channel's connections, for interceptors with an `on_connection` callback. An event does not
/// change once it was reported.
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
  }

  public let kind: Kind
  /// The address of the server. nil: the event is about the look-up of the target's name, not about one
  /// address.
  public let address: ByteBuffer?
  public let words: ByteBuffer?
  public let milliseconds: UInt64
  public let security: SecurityFacts?
  /// The known facts about the connection, with `ready`.
  public let connection: ConnectionFacts?
  fileprivate var next: ConnectionNews?

  fileprivate init(
    _ kind: Kind, _ address: ByteBuffer?, _ words: ByteBuffer?, _ milliseconds: UInt64,
    _ security: SecurityFacts?, _ connection: ConnectionFacts?
  ) {
    self.kind = kind
    self.address = address
    self.words = words
    self.milliseconds = milliseconds
    self.security = security
    self.connection = connection
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
    milliseconds: UInt64 = 0, _ security: SecurityFacts? = nil, _ connection: ConnectionFacts? = nil
  ) {
    guard let listeners, listeners.isAnybody else { return }
    let text = address.map { ByteBuffer().say($0.text()) }
    news.append(ConnectionNews(kind, text, words, milliseconds, security, connection))
    if closedBecause == nil { work.schedule(self) }
  }

  func tellNews() {
    while let one = news.next() {
      listeners?.tell(one)
      runtime.mark.isStale = true
    }
  }

  /// Queues an event for each part of the service config that the channel can't apply.
  func noteIgnored() {
    if destination.service.balancing.policy == .weightedRoundRobin {
      noteIgnored(
        "weighted_round_robin: servers are not asked for reports of their load, so all weights are equal")
    }
    let ignored = destination.service.ignored
    if ignored.hedgingPolicy { noteIgnored("hedgingPolicy: calls are not hedged yet") }
  }

  private func noteIgnored(_ words: StaticString) { note(.ignored, nil, ByteBuffer().say(words)) }
}
