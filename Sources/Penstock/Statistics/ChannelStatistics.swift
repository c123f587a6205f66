internal import CPenstock
internal import FoundationEssentials

// The figures of a channel, as docs/operating.md describes them. They are read from the library's JSON, whose names these
// properties have in Swift's spelling; a figure that a later version adds is left out.

/// The state and the figures of a channel at one moment.
public struct ChannelStatistics: Sendable, Hashable, Decodable {
  /// The target, as the program gave it.
  public let target: String
  /// The state of the connections.
  public let state: Channel.Connectivity
  /// The load balancing policy; "picker": a function of the program chooses.
  public let policy: String
  /// The look-up of the target's name.
  public let name: NameLookup
  /// The attempts of calls that have come to the channel.
  public let attempts: Attempts
  /// `retryThrottling` of the service config; nil: none.
  public let throttle: Throttle?
  /// The TLS handshakes since the channel was made; nil: the channel has no TLS.
  public let tls: Handshakes?
  /// The addresses, in the order of the resolver.
  public let endpoints: [Endpoint]

  /// The look-up of a target's name.
  public struct NameLookup: Sendable, Hashable, Decodable {
    /// How many addresses are known.
    public let addresses: Int
    /// Whether a look-up is under way.
    public let resolving: Bool
    /// Why the last look-up has failed; nil: it has not.
    public let lastError: String?
    private let nextMs: Int?
    /// In how long the next look-up begins; nil: none is planned.
    public var next: Duration? { nextMs.map { .milliseconds($0) } }
  }

  /// The attempts of calls. One that its call gives up neither succeeds nor fails.
  public struct Attempts: Sendable, Hashable, Decodable {
    /// How many have begun since the channel was made.
    public let started: Int
    /// How many ended with OK.
    public let succeeded: Int
    /// How many ended with another status from the server or the channel.
    public let failed: Int
    /// How many are under way.
    public let inFlight: Int
    /// How many of these wait for an address, a connection or a free stream.
    public let waiting: Int
    /// How many requests a retry policy has sent again.
    public let retries: Int
    /// How many requests were sent again because the server had certainly not processed them.
    public let repeats: Int
    /// How many requests were not sent again because of `retryThrottling`.
    public let throttled: Int
  }

  /// How `retryThrottling` of the service config stands.
  public struct Throttle: Sendable, Hashable, Decodable {
    /// The tokens that are left: each failure takes one.
    public let tokens: Double
    /// The most tokens.
    public let maxTokens: Double
    /// Whether requests are sent again now: more than half of the tokens are left.
    public let retriesAllowed: Bool
  }

  /// TLS handshakes.
  public struct Handshakes: Sendable, Hashable, Decodable {
    /// How many in which the server has shown its certificate.
    public let fullHandshakes: Int
    /// How many that have resumed the session of an earlier connection.
    public let resumedHandshakes: Int
  }

  /// An address of the target.
  public struct Endpoint: Sendable, Hashable, Decodable {
    /// The address, such as "192.0.2.1:443".
    public let address: String
    /// The state of the connections to this address.
    public let state: Channel.Connectivity
    /// False: the resolver does not give the address any more, and its last calls end.
    public let current: Bool
    /// Whether outlier detection has taken the server out.
    public let ejected: Bool
    /// The weight that the resolver gave it.
    public let weight: Int
    /// Why the last attempt to connect has failed, or the health check; nil: it has not.
    public let lastError: String?
    /// How many attempts to connect have failed in a row.
    public let failures: Int
    private let nextMs: Int?
    /// In how long the next attempt begins; nil: none is planned.
    public var next: Duration? { nextMs.map { .milliseconds($0) } }
    /// The connections to the address.
    public let connections: [Connection]
  }

  /// A connection.
  public struct Connection: Sendable, Hashable, Decodable {
    /// The state of a connection.
    public enum State: String, Sendable, Decodable {
      /// HTTP has not begun.
      case connecting
      /// It takes calls.
      case ready
      /// It takes no more calls.
      case draining
      /// It has ended.
      case closed
    }
    /// The state.
    public let state: State
    /// The server's address.
    public let peer: String
    /// This side's address; nil: it is not known.
    public let local: String?
    /// The protocol of the calls, such as "grpc".
    public let `protocol`: String
    /// The version of HTTP: "2" or "1.1".
    public let http: String
    /// The version of TLS; nil: cleartext.
    public let tls: String?
    /// Whether the connection has resumed the session of an earlier one; nil: cleartext.
    public let tlsResumed: Bool?
    private let ageMs: Int
    private let silentMs: Int?
    /// The time since HTTP began.
    public var age: Duration { .milliseconds(ageMs) }
    /// The time since the last byte came; nil: none has come.
    public var silent: Duration? { silentMs.map { .milliseconds($0) } }
    /// The open streams: calls, and a health check.
    public let streams: Int
    /// The calls that were given to the connection and are not sent yet.
    public let streamsWaiting: Int
    /// How many streams may be open at a time; 0: none any more; nil: the server sets no limit.
    public let streamsAllowed: Int?
    /// How many streams were opened since the connection began.
    public let streamsOpened: Int
    /// How many messages calls have sent.
    public let sentMessages: Int
    /// How many messages calls have received.
    public let receivedMessages: Int
    /// How many bytes the socket has taken, with all of HTTP and TLS.
    public let sentBytes: Int
    /// How many bytes came from the socket since HTTP began.
    public let receivedBytes: Int
    /// How many pings were sent that look for dead connections; nil with HTTP/1.1.
    public let keepalives: Int?
    /// The number of the last ping that was answered; nil with HTTP/1.1.
    public let keepalivesAnswered: Int?
    /// How many bytes the server still takes on all streams together; nil with HTTP/1.1.
    public let sendWindow: Int?
    /// How many bytes this side still takes on all streams together; nil with HTTP/1.1.
    public let receiveWindow: Int?
  }
}

extension Channel.Connectivity: Decodable {
  /// Reads the name that the state has in the library's JSON, such as "transient_failure".
  public init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    let name = try container.decode(String.self)
    switch name {
    case "idle": self = .idle
    case "connecting": self = .connecting
    case "ready": self = .ready
    case "transient_failure": self = .transientFailure
    case "shutdown": self = .shutdown
    default:
      throw DecodingError.dataCorruptedError(
        in: container, debugDescription: "\(name) is no state of a channel")
    }
  }
}

/// Reads figures from the library's JSON.
func figures<Value: Decodable>(_ type: Value.Type, _ json: String) throws(PenstockError) -> Value {
  let decoder = JSONDecoder()
  decoder.keyDecodingStrategy = .convertFromSnakeCase
  do { return try decoder.value([UInt8](json.utf8)) } catch {
    throw PenstockError(code: .unsupported, message: "figures that this module does not know: \(error)")
  }
}

extension Channel {
  /// The state and the figures of the channel, copied between two steps of its loop, so they fit together.
  ///
  /// - Parameter limit: how long the loop may take to answer.
  /// - Throws: ``PenstockError``: `timeout`: a callback does not return; `closed`: the runtime has ended.
  public func statistics(within limit: Duration = .seconds(5)) async throws -> ChannelStatistics {
    let handle = handle
    let json = try await waitingForText("the figures of a channel", limit) {
      penstock_channel_stats_json(handle.pointer, $0, &$1)
    }
    return try figures(ChannelStatistics.self, json)
  }
}
