import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockHTTP
import PenstockClient
import PenstockTickets

/// Rate limit: a token bucket in which calls wait for their turn.
///
/// The state of the bucket is one time (the generic cell rate algorithm): the time at which the bucket would
/// be full again. Each call moves it later by one interval. So a call knows the time of its turn when it
/// starts, and no call has to wake another.
public final class RateLimit: ReadyInterceptor, @unchecked Sendable {
  public struct Options {
    /// The time between the starts of two calls, in nanoseconds.
    public var interval: UInt64 = 0
    public var burst: UInt64 = 1
    public var maxWait: UInt64 = 1_000_000_000
    public var maxWaiting: UInt64 = 1000
    public var code = StatusCode.resourceExhausted

    public init() {}
  }

  /// The facts about one call that the rate limit keeps.
  private final class Turn {
    let limit: RateLimit
    /// The time at which the call may start, in monotonic nanoseconds; 0: the call did not have to wait.
    var at: UInt64 = 0

    init(_ limit: RateLimit) { self.limit = limit }
  }

  private enum Answer { case now, at(UInt64), tooMany, tooLate }

  private let options: Options
  private let lock = Lock()
  private var fullAt: UInt64 = 0

  public init(_ options: Options) {
    self.options = options
    var callbacks = Registration.Callbacks()
    callbacks.create = { _, userData, out in keep(Turn(this(userData, RateLimit.self)), out) }
    callbacks.onStart = { handle, state in
      let (hop, turn) = behind(handle, state, Turn.self)
      return turn.limit.start(hop, turn)
    }
    callbacks.destroy = { handle, state in
      let (hop, turn) = behind(handle, state, Turn.self)
      if turn.at > 0 { turn.limit.ended(turn, at: hop.platform.clock()) }
      forget(state, Turn.self)
    }
    super.init("rate_limit", callbacks)
  }

  private func start(_ hop: Hop, _ turn: Turn) -> Int32 {
    let now = hop.platform.clock()
    switch reserve(now) {
    case .now: return next
    case .at(let time):
      turn.at = time
      let ticket = hop.takeTicket()
      // The delay is relative to the time that the clock shows now, as `now` is. The loop's time may be
      // older.
      if ticket != 0, Tickets.resolveAfter(ticket, .verdict(.next), nanoseconds: time - now) == .ok {
        return pause
      }
      _ = hop.finish(Status(.resourceExhausted, "rate limit: no memory to wait"))
    case .tooMany: _ = hop.finish(Status(options.code, "rate limit: too many calls wait already"))
    case .tooLate: _ = hop.finish(Status(options.code, "rate limit: the wait would be over max_wait_ms"))
    }
    return next
  }

  /// Reserves the next turn for a call that starts at `now`. A call that is refused reserves nothing.
  private func reserve(_ now: UInt64) -> Answer {
    lock.withLock { () -> Answer in
      let full = max(fullAt, now) + options.interval
      let depth = options.burst * options.interval
      if full - now <= depth {
        fullAt = full
        return .now
      }
      let wait = full - now - depth
      // The turns of the waiting calls are one interval apart, so this quotient is the number of calls that
      // would wait, including this one.
      if (wait + options.interval - 1) / options.interval > options.maxWaiting { return .tooMany }
      if wait > options.maxWait { return .tooLate }
      fullAt = full
      return .at(now + wait)
    }
  }

  /// Gives back the turn of a call that has ended while it waited, so that later calls wait less.
  private func ended(_ turn: Turn, at now: UInt64) {
    guard now < turn.at else { return }
    lock.withLock { fullAt -= min(fullAt, options.interval) }
  }
}
