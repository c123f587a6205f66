import PenstockCall
import PenstockChannel
import PenstockWire

/// An event of a channel's connections, for the interceptors that have `on_connection`. Once told, an event never
/// changes.
public final class ConnectionNews {
  /// The kind of an event. The raw values are those of the ABI.
  public enum Kind: Int32, Sendable {
    /// The channel asks for the addresses of its name.
    case resolving = 1
    /// The name could not be resolved, for the reason in `words`.
    case unresolved = 2
    case connecting = 3
    /// TLS is established, with the facts in `security`.
    case secured = 4
    case ready = 5
    /// The connection takes no new calls, for the reason in `words` if the peer has given one.
    case draining = 6
    /// A connection that was ready has ended.
    case lost = 7
    /// No connection could be made, or it was useless: the next attempt begins in `milliseconds`.
    case backoff = 8
    /// A connection with calls has been silent for `milliseconds`.
    case silent = 9
    /// The channel, or the server, can't carry out a part of the service config. `words` names the part and
    /// the consequence.
    case ignored = 10
    /// The server answers a health check that it serves.
    case healthy = 11
    /// The server does not answer a health check that it serves, for the reason in `words`: it gets no calls.
    case unhealthy = 12
  }

  public let kind: Kind
  /// The address of the server; nil: the event is about the channel's name.
  public let address: ByteBuffer?
  public let words: ByteBuffer?
  public let milliseconds: UInt64
  public let security: SecurityFacts?
  fileprivate var next: ConnectionNews?

  fileprivate init(
    _ kind: Kind, _ address: ByteBuffer?, _ words: ByteBuffer?, _ milliseconds: UInt64,
    _ security: SecurityFacts?
  ) {
    self.kind = kind
    self.address = address
    self.words = words
    self.milliseconds = milliseconds
    self.security = security
  }
}

/// The listeners to a channel's connection events. Driving thread only. It is a class, so that the layers
/// above can define who the listeners are and how they get an event.
class NewsListeners {
  /// Whether there is any listener.
  var isAnybody: Bool { false }
  /// Tells the listeners one event. This runs user code.
  func tell(_ news: ConnectionNews) {}
}

/// The events that have not been told yet, oldest first.
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
  /// Notes an event, which is told in the same turn, once the channel's present work is done: a listener may close the
  /// channel, or make a call.
  @inline(never) @_optimize(size)
  func note(
    _ kind: ConnectionNews.Kind, _ address: SocketAddress? = nil, _ words: ByteBuffer? = nil,
    milliseconds: UInt64 = 0, _ security: SecurityFacts? = nil
  ) {
    guard let listeners, listeners.isAnybody else { return }
    let text = address.map { ByteBuffer().say($0.text()) }
    news.append(ConnectionNews(kind, text, words, milliseconds, security))
    if closedBecause == nil { work.schedule(self) }
  }

  @inline(never) @_optimize(size)
  func tellNews() {
    while let one = news.next() {
      listeners?.tell(one)
      runtime.watch.hasRun = true
    }
  }

  /// Notes an event for the part of the present service config that the channel does not carry out.
  @inline(never) @_optimize(size)
  func noteBalancing() {
    if destination.service.balancing.policy == .weightedRoundRobin {
      note(
        .ignored, nil,
        ByteBuffer().say(
          "weighted_round_robin: servers are not asked for reports of their load, so all weights are equal"))
    }
  }
}
