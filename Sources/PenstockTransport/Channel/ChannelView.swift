import PenstockCall
import PenstockChannel
import PenstockHTTP
import PenstockLoop
import PenstockWire

/// A copy of a channel's state at one moment, for diagnosis.
public struct ChannelView {
  public var target: ByteBuffer
  public var state: Connectivity
  public var policy: StaticString
  public var name: NameView
  public var attempts: AttemptCounts
  /// How many attempts are under way, and how many of them wait for a connection, a stream or an endpoint.
  public var running: Int
  public var waiting: Int
  /// Tokens in thousandths, and the most of them; nil: retries are not throttled.
  public var throttle: (tokens: Int, most: Int)?
  /// nil: the channel has no TLS.
  public var handshakes: HandshakeCounts?
  public var endpoints: [EndpointView]
}

/// The state of the look-up of a channel's name.
public struct NameView {
  /// How many addresses are known.
  public var addresses: Int
  public var isAsking: Bool
  /// The reason of the last failure; nil: the last look-up has not failed.
  public var failure: ByteBuffer?
  /// When the next look-up begins, in monotonic nanoseconds; nil: none is planned.
  public var next: UInt64?
}

/// One address of a channel, and its connections.
public struct EndpointView {
  public var address: ByteBuffer
  public var state: Connectivity
  public var isEjected: Bool
  /// Whether the address is still one of the target's. If not, only calls of earlier times are on it.
  public var isCurrent: Bool
  /// The reason of the last failure; nil: the address works, or was not tried.
  public var failure: ByteBuffer?
  /// How many attempts to connect have failed in a row.
  public var failures: Int
  /// When the next attempt to connect begins, in monotonic nanoseconds; nil: none is planned.
  public var next: UInt64?
  public var weight: Int
  public var connections: [ConnectionView]
}

/// Counts a channel's attempts. Driving thread only.
public struct AttemptCounts {
  public var started: UInt64 = 0
  public var succeeded: UInt64 = 0
  public var failed: UInt64 = 0
  /// How many requests were sent again by a retry policy, and how many because the server had certainly not
  /// processed them.
  public var retries: UInt64 = 0
  public var repeats: UInt64 = 0
  /// How many requests were not sent again because retries are throttled.
  public var throttled: UInt64 = 0
}

/// Counts the TLS handshakes that were done. Driving thread only.
public struct HandshakeCounts {
  public var full: UInt64 = 0
  /// How many have resumed an earlier connection's session.
  public var resumed: UInt64 = 0

  mutating func count(isResumed: Bool) {
    if isResumed { resumed &+= 1 } else { full &+= 1 }
  }
}

extension Channel {
  /// Copies the channel's state. Called on the driving thread.
  public var view: ChannelView { core.view }
}

extension ChannelCore {
  var view: ChannelView {
    ChannelView(
      target: destination.name, state: connectivity.now,
      policy: picker == nil ? destination.service.balancing.policy.name : "picker",
      name: nameView, attempts: counts, running: attempts.count,
      waiting: attempts.reduce(0) { $0 + ($1.isWaiting ? 1 : 0) },
      throttle: throttle.map { ($0.tokens, $0.settings.most) },
      handshakes: destination.tls == nil ? nil : handshakes,
      endpoints: (endpoints + removed).map { $0.view })
  }
}
