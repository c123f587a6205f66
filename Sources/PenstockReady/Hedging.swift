import PenstockCall
import PenstockChannel
import PenstockClient
import PenstockLoop
import PenstockTransport
import PenstockWire

/// Hedging of unary calls (gRFC A6): while a call has no answer, it is sent again, and the first answer counts.
///
/// The interceptor takes the call and answers it itself. Each attempt is a side call, through the hops below.
/// So deadline, cancel and the laws are those of side calls and of a hop that answers. `HedgedCall` has the
/// attempts of one call.
public final class Hedging: ReadyInterceptor, @unchecked Sendable {
  public struct Options {
    public var attempts = 2
    /// In nanoseconds.
    public var delay: UInt64 = 100_000_000
    /// The codes after which other attempts go on; nil: UNAVAILABLE.
    public var codes: StatusCodes?
    public var throttle: RetryThrottle.Settings?

    public init() {}
  }

  /// The figures of all calls. Each attempt that was sent is open, or has won, failed or been cancelled.
  public struct Counts {
    public var calls: UInt64 = 0
    public var sent: UInt64 = 0
    public var open: UInt64 = 0
    public var won: UInt64 = 0
    public var failed: UInt64 = 0
    public var cancelled: UInt64 = 0
    /// The attempts beyond the first one of their call, and how many of them have won.
    public var hedges: UInt64 = 0
    public var hedgesWon: UInt64 = 0
    /// The calls that were not sent again because of the throttle, or because the server did not want it.
    public var throttled: UInt64 = 0
    public var refused: UInt64 = 0
  }

  let options: Options
  let codes: StatusCodes
  /// The channel for the attempts after the first; nil: the call's own.
  let other: OtherChannel?
  private let lock = Lock()
  private var counts = Counts()
  private var throttle: RetryThrottle?

  public init(_ options: Options, other: OtherChannel?) {
    self.options = options
    self.other = other
    var codes = options.codes ?? StatusCodes()
    if options.codes == nil { codes.insert(.unavailable) }
    self.codes = codes
    throttle = options.throttle.map { RetryThrottle($0) }
    var callbacks = Registration.Callbacks()
    callbacks.create = { _, userData, out in keep(HedgedCall(this(userData, Hedging.self)), out) }
    callbacks.onStart = { handle, state in
      let (hop, call) = behind(handle, state, HedgedCall.self)
      return call.start(hop)
    }
    callbacks.onSend = { handle, state in
      let (hop, call) = behind(handle, state, HedgedCall.self)
      return call.send(hop)
    }
    callbacks.onHalfClose = { _, state in
      this(state, HedgedCall.self).begin()
      return next
    }
    callbacks.destroy = { _, state in
      this(state, HedgedCall.self).leave()
      forget(state, HedgedCall.self)
    }
    super.init("hedging", callbacks, kinds: 1 << UInt32(CallKind.unary.rawValue))
  }

  func count(_ change: (inout Counts) -> Void) { lock.withLock { change(&counts) } }

  /// The figures, and the tokens of the throttle in thousandths with the most of them.
  public var state: (counts: Counts, throttle: (tokens: Int, most: Int)?) {
    lock.withLock { (counts, throttle.map { ($0.tokens, $0.settings.most) }) }
  }

  /// Whether the throttle allows another attempt.
  var allowsMore: Bool { lock.withLock { throttle?.allowsRetries != false } }

  /// Counts the end of an attempt for the throttle.
  func note(_ code: StatusCode, hasFailed: Bool, _ pushback: Pushback) {
    lock.withLock {
      if code == .ok { throttle?.succeeded() } else if hasFailed || pushback == .never { throttle?.failed() }
    }
  }
}

/// A channel that is held as a user's handle holds it.
public final class OtherChannel: @unchecked Sendable {
  let channel: ClientChannel

  public init(_ channel: ClientChannel) {
    self.channel = channel
    channel.retainHandle()
  }

  deinit { channel.releaseHandle() }
}
