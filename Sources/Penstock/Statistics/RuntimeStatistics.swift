internal import CPenstock

/// The calls and the channels of a runtime at one moment.
public struct RuntimeStatistics: Sendable, Hashable, Decodable {
  /// Whether each loop has answered. One that has not is kept by a callback, which ``running`` names.
  public let isComplete: Bool
  /// The callback that runs; nil: none.
  public let running: Running?
  /// The calls that have not ended, the newest first.
  public let calls: [RunningCall]
  /// The figures of the channels.
  public let channels: [ChannelStatistics]

  private enum CodingKeys: String, CodingKey {
    case complete, running, calls, channels
  }

  /// Reads the library's JSON.
  public init(from decoder: any Decoder) throws {
    let members = try decoder.container(keyedBy: CodingKeys.self)
    isComplete = try members.decode(Bool.self, forKey: .complete)
    running = try members.decodeIfPresent(Running.self, forKey: .running)
    calls = try members.decodeIfPresent([RunningCall].self, forKey: .calls) ?? []
    channels = try members.decodeIfPresent([ChannelStatistics].self, forKey: .channels) ?? []
  }

  /// A callback that runs.
  public struct Running: Sendable, Hashable, Decodable {
    /// The name of its interceptor; nil: a callback of the call itself.
    public let interceptor: String?
    /// The event, such as "start".
    public let event: String
    /// The number of the call.
    public let call: UInt64?
    private let forMs: Int
    /// How long the callback has run at most.
    public var duration: Duration { .milliseconds(forMs) }
  }

  /// A call that has not ended.
  public struct RunningCall: Sendable, Hashable, Decodable {
    /// The number that names the call within the process.
    public let id: UInt64
    /// The method.
    public let method: String
    /// The target of the channel, as the program gave it.
    public let target: String
    private let ageMs: Int
    private let deadlineMs: Int?
    /// How long ago the call was made.
    public var age: Duration { .milliseconds(ageMs) }
    /// The time that is left until its deadline; nil: it has none.
    public var timeout: Duration? { deadlineMs.map { .milliseconds($0) } }
    /// How often its request was given to the transport.
    public let attempts: Int
    /// The protocol, such as "grpc"; nil: it has no connection.
    public let `protocol`: String?
    /// The version of HTTP; nil: it has no connection.
    public let http: String?
    /// The server's address; nil: it has no connection.
    public let peer: String?
    /// This side's address; nil: it has no connection.
    public let local: String?
  }
}

extension Runtime {
  /// The calls and the channels of the runtime. If a loop does not answer within `limit`, because a callback does not
  /// return, its calls and channels are left out.
  ///
  /// - Throws: ``PenstockError``: no memory, or the runtime belongs to the parent of this process.
  public func statistics(within limit: Duration = .seconds(5)) async throws -> RuntimeStatistics {
    let handle = handle
    let json = try await waitingForText("the figures of a runtime", limit) {
      penstock_runtime_snapshot_json(handle.pointer, $0, &$1)
    }
    return try figures(RuntimeStatistics.self, json)
  }
}
