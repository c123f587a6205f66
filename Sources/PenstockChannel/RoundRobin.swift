/// Sends calls to the ready endpoints in turn (gRPC's round_robin), or to each as often as its weight says
/// (static_weighted_round_robin). Every endpoint has a connection, or the channel tries to make one.
///
/// | | wanted | named | nameless | rest | close |
/// |---|---|---|---|---|---|
/// | idle | resolve -> naming | - | - | - | -> closed |
/// | naming | - | connectAll, serve -> spread | fail -> nameless | useOnly(nil) -> idle | -> closed |
/// | spread | - | connectAll, serve | - | useOnly(nil) -> idle | -> closed |
/// | nameless | - | connectAll, serve -> spread | fail | useOnly(nil) -> idle | -> closed |
/// | closed | fail | - | - | - | - |
///
/// | spread, endpoint i | ready | failed | rested | gone, goneUnused | room |
/// |---|---|---|---|---|---|
/// | i was connecting | i is ready; serve | i fails; refresh; of all: fail | connect(i) | - | - |
/// | i was ready | - | i fails; refresh; of all: fail | - | i is connecting; connect(i), refresh | serve |
/// | i failed | i is ready; serve | refresh; of all: fail | connect(i) | - | - |
///
/// rest: the channel goes idle, and useOnly(nil) drops all its connections. rested: endpoint i has waited long
/// enough after a failure. gone, goneUnused: no connection of i takes new calls any more, and the last one has
/// answered calls, or none. room: a connection of i can take another call.
///
/// In each cell of the first table: the actions, then the state that follows. In each cell of the second
/// table: the new state of endpoint i, then the actions. "-" changes nothing. If all endpoints have failed,
/// fail comes after connectAll instead of serve. "of all: fail": fail comes if no endpoint is ready or
/// connecting any more. An endpoint that has failed counts as failed until it is ready, although the channel
/// goes on trying to connect to it. No I/O, no clock.
public struct RoundRobin: Equatable {
  public enum Part: Equatable, Sendable {
    case connecting, ready, failed
  }

  public enum State: Equatable {
    case idle
    /// The resolver was asked for addresses.
    case naming
    /// There are endpoints; each has one of the three states of `Part`.
    case spread([Part])
    /// There are no addresses. The resolver looks the name up again after a wait.
    case nameless
    case closed
  }

  public private(set) var state = State.idle
  /// The time in nanoseconds that each attempt to connect may take.
  public let timeout: UInt64
  /// The indices of the endpoints that are ready.
  public private(set) var ready: [Int] = []
  private var weights: [UInt32] = []
  private var turn: Turn

  /// `random` decides which endpoint gets the first call, so that many clients do not all begin with the same
  /// endpoint.
  public init(timeout: UInt64, random: UInt64) {
    self.timeout = timeout
    turn = Turn(random)
  }

  /// Returns the index of the endpoint for the next call. Called only while `pick` is `.choose`.
  public mutating func choose() -> Int { ready[turn.next()] }

  public var pick: Pick {
    switch state {
    case .idle, .naming: return .wait
    case .spread(let parts):
      if !ready.isEmpty { return .choose }
      return parts.contains(.connecting) ? .wait : .fail
    case .nameless, .closed: return .fail
    }
  }

  /// Whether attempts wait because no addresses are known.
  public var lacksName: Bool {
    switch state {
    case .idle, .naming, .nameless: true
    case .spread, .closed: false
    }
  }

  /// The reason for which attempts fail now, while `pick` is `.fail`.
  public var failure: BalancerAction.Why {
    switch state {
    case .nameless: .nameless
    case .closed: .closed
    case .idle, .naming, .spread: .unconnected
    }
  }

  public var connectivity: Connectivity {
    switch state {
    case .idle: return .idle
    case .naming: return .connecting
    case .spread(let parts):
      if !ready.isEmpty { return .ready }
      return parts.contains(.connecting) ? .connecting : .transientFailure
    case .nameless: return .transientFailure
    case .closed: return .shutdown
    }
  }

  public mutating func handle(_ event: BalancerEvent, now: UInt64) -> Actions<BalancerAction> {
    switch (state, event) {
    case (.idle, .wanted):
      state = .naming
      return Actions(.resolve)
    case (.naming, .named(let states, let weights)), (.spread, .named(let states, let weights)),
      (.nameless, .named(let states, let weights)):
      self.weights = weights
      spread(states.map(RoundRobin.part))
      return Actions(
        .connectAll(until: Time.after(timeout, now)), pick == .fail ? .fail(.unconnected) : .serve)
    case (.naming, .nameless), (.nameless, .nameless):
      state = .nameless
      return Actions(.fail(.nameless))
    case (.spread(let parts), .endpoint(let index, let news)) where index < parts.count:
      return handle(news, of: index, parts, now)
    case (.naming, .rest), (.spread, .rest), (.nameless, .rest):
      stop(.idle)
      return Actions(.useOnly(nil))
    case (.closed, .wanted):
      return Actions(.fail(.closed))
    case (.idle, .close), (.naming, .close), (.spread, .close), (.nameless, .close):
      stop(.closed)
      return .none
    case (.idle, .named), (.idle, .nameless), (.idle, .endpoint), (.idle, .time), (.idle, .rest),
      (.naming, .wanted), (.naming, .endpoint), (.naming, .time),
      (.spread, .wanted), (.spread, .nameless), (.spread, .endpoint), (.spread, .time),
      (.nameless, .wanted), (.nameless, .endpoint), (.nameless, .time),
      (.closed, .named), (.closed, .nameless), (.closed, .endpoint), (.closed, .time), (.closed, .rest),
      (.closed, .close):
      return .none
    }
  }

  private mutating func handle(_ news: EndpointNews, of index: Int, _ parts: [Part], _ now: UInt64)
    -> Actions<BalancerAction>
  {
    var parts = parts
    switch (parts[index], news) {
    case (.connecting, .ready), (.failed, .ready):
      parts[index] = .ready
      spread(parts)
      return Actions(.serve)
    case (.connecting, .failed), (.ready, .failed), (.failed, .failed):
      parts[index] = .failed
      spread(parts)
      return pick == .fail ? Actions(.refresh, .fail(.unconnected)) : Actions(.refresh)
    case (.connecting, .rested), (.failed, .rested):
      return Actions(.connect(index, until: Time.after(timeout, now)))
    case (.ready, .gone), (.ready, .goneUnused):
      parts[index] = .connecting
      spread(parts)
      return Actions(.connect(index, until: Time.after(timeout, now)), .refresh)
    case (.ready, .room):
      return Actions(.serve)
    case (.connecting, .gone), (.connecting, .goneUnused), (.connecting, .room),
      (.ready, .ready), (.ready, .rested),
      (.failed, .gone), (.failed, .goneUnused), (.failed, .room):
      return .none
    }
  }

  private mutating func spread(_ parts: [Part]) {
    state = .spread(parts)
    ready = parts.indices.filter { parts[$0] == .ready }
    turn.weigh(ready.map { $0 < weights.count ? weights[$0] : 1 })
  }

  private mutating func stop(_ next: State) {
    state = next
    ready = []
  }

  private static func part(_ state: Connectivity) -> Part {
    switch state {
    case .ready: .ready
    case .transientFailure: .failed
    case .idle, .connecting, .shutdown: .connecting
    }
  }
}

/// Chooses the endpoint of each call, so that every endpoint gets calls in proportion to its weight: the
/// static stride scheduler of gRPC's weighted round robin. The scheduler goes round the endpoints, and an
/// endpoint skips so many rounds that it gets only its share; the endpoint with the largest weight skips
/// none.
struct Turn: Equatable {
  private static let heaviest: UInt64 = 65535

  private var sequence: UInt64
  private var count: UInt64 = 0
  /// The weights, scaled so that the largest is `heaviest` and the least is at least 1. Empty: all weights
  /// are equal.
  private var weights: [UInt64] = []

  init(_ random: UInt64) { sequence = random >> 32 }

  mutating func weigh(_ raw: [UInt32]) {
    count = UInt64(raw.count)
    weights = []
    guard let most = raw.max(), most > 0, raw.contains(where: { $0 != most }) else { return }
    for weight in raw {
      weights.append(max((UInt64(max(weight, 1)) * Turn.heaviest + UInt64(most) / 2) / UInt64(most), 1))
    }
  }

  /// Returns the next endpoint, as its index in the list of weights that `weigh` got. That list must not be
  /// empty.
  mutating func next() -> Int {
    while true {
      sequence &+= 1
      let position = sequence % count
      if weights.isEmpty { return Int(position) }
      let weight = weights[Int(position)]
      // Each endpoint begins at another point of its cycle, so that endpoints with small weights do not all
      // get their calls in one round.
      let passed = weight &* (sequence / count) &+ position &* (Turn.heaviest / 2)
      if passed % Turn.heaviest >= Turn.heaviest - weight { return Int(position) }
    }
  }
}
