internal import CPenstock

/// An event of a channel: of its connections, of the look-up of its name, of its retries and its policies.
/// docs/operating.md says what each means, and docs/channel.md in which order they come.
public struct ConnectionEvent: Sendable, Hashable {
  /// The kind of an event. Later versions may add kinds.
  public struct Kind: RawRepresentable, Sendable, Hashable {
    /// The name, such as "slow_callback".
    public let rawValue: String
    /// Makes a kind of its name.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// The channel asks for the addresses of its name.
    public static let resolving = Kind(rawValue: "resolving")
    /// The addresses of the name are known.
    public static let resolved = Kind(rawValue: "resolved")
    /// The name could not be resolved.
    public static let unresolved = Kind(rawValue: "unresolved")
    /// An attempt to connect to the address begins.
    public static let connecting = Kind(rawValue: "connecting")
    /// TLS is established on the new connection.
    public static let secured = Kind(rawValue: "secured")
    /// The connection takes calls.
    public static let ready = Kind(rawValue: "ready")
    /// The connection takes no new calls; those on it go on.
    public static let draining = Kind(rawValue: "draining")
    /// A connection that was ready has ended.
    public static let lost = Kind(rawValue: "lost")
    /// Connecting failed; the next attempt comes after ``ConnectionEvent/duration``.
    public static let backoff = Kind(rawValue: "backoff")
    /// For ``ConnectionEvent/duration`` nothing has come on a connection with calls.
    public static let silent = Kind(rawValue: "silent")
    /// A part of the service config is not supported.
    public static let ignored = Kind(rawValue: "ignored")
    /// The server's health check says that it serves.
    public static let healthy = Kind(rawValue: "healthy")
    /// The server's health check does not say that it serves.
    public static let unhealthy = Kind(rawValue: "unhealthy")
    /// The channel closes its connections, until the next call.
    public static let idle = Kind(rawValue: "idle")
    /// No address can be reached.
    public static let unreachable = Kind(rawValue: "unreachable")
    /// The load balancing policy changes.
    public static let policy = Kind(rawValue: "policy")
    /// A call is sent again by its retry policy, after ``ConnectionEvent/duration``.
    public static let retry = Kind(rawValue: "retry")
    /// A call is not sent again, because most requests have failed lately.
    public static let throttled = Kind(rawValue: "throttled")
    /// Outlier detection has ejected the server.
    public static let ejected = Kind(rawValue: "ejected")
    /// The server that was ejected gets calls again.
    public static let restored = Kind(rawValue: "restored")
    /// A callback has kept its thread for ``ConnectionEvent/duration``.
    public static let slowCallback = Kind(rawValue: "slow_callback")
    /// Files of TLS have changed and were read again.
    public static let tlsReloaded = Kind(rawValue: "tls_reloaded")
    /// A changed file of TLS can't be used.
    public static let tlsKept = Kind(rawValue: "tls_kept")
  }

  /// How much an operator has to mind.
  public enum Level: Int32, Sendable, Comparable, CaseIterable {
    /// The normal course of a connection or a call.
    case debug
    /// A change that lasts, such as a new connection.
    case info
    /// It may explain calls that fail or are slow.
    case warning
    /// Calls fail, unless they may wait.
    case error

    /// Whether one level is less grave than another.
    public static func < (one: Level, other: Level) -> Bool { one.rawValue < other.rawValue }
  }

  /// The kind of the event.
  public let kind: Kind
  /// The level of its kind.
  public let level: Level
  /// The channel's target, as the program gave it.
  public let target: String
  /// The server's address, such as "192.0.2.1:443"; nil: the event is of no single server.
  public let address: String?
  /// The reason in words, or the name or number that the kind is about.
  public let message: String?
  /// The time that the kind is about; nil: it is about none.
  public let duration: Duration?
  /// The number of the call that the event is about; nil: it is about none.
  public let call: UInt64?
  /// The method of that call.
  public let method: String?
  /// The interceptor whose callback was slow.
  public let interceptor: String?
  /// The name of the callback that was slow.
  public let callback: String?

  init(_ event: penstock_connection_event) {
    func text(_ string: UnsafePointer<CChar>?) -> String? { string.map { String(cString: $0) } }
    kind = Kind(rawValue: text(event.name) ?? "")
    level = Level(rawValue: event.level) ?? .info
    target = text(event.target) ?? ""
    address = text(event.address)
    message = text(event.message)
    duration = event.ms == 0 ? nil : .milliseconds(Int64(clamping: event.ms))
    call = event.call == 0 ? nil : event.call
    method = text(event.method)
    interceptor = text(event.interceptor)
    callback = text(event.callback)
  }
}

extension Interception {
  /// Hears each event of a channel's connections, or of all channels of the runtime to which it is added. It has no part
  /// in calls. The function runs on the runtime's thread and must not wait.
  public static func connectionEvents(
    _ hear: @escaping @Sendable (ConnectionEvent) -> Void
  ) -> Interception {
    typealias Hear = @Sendable (ConnectionEvent) -> Void
    return Interception { _, _, _ in
      var table = penstock_interceptor()
      table.struct_size = MemoryLayout<penstock_interceptor>.size
      table.user_data = KeptFunction<Hear>.keep(hear)
      table.finalizer = { KeptFunction<Hear>.release($0) }
      table.on_connection = { data, event in
        if let hear = KeptFunction<Hear>.of(data), let event { hear(ConnectionEvent(event.pointee)) }
      }
      return (PENSTOCK_OK, table)
    }
  }
}
