internal import CPenstock

/// Counts calls by method and status, and how long they took. docs/ready.md says more.
public struct CallMetrics: Sendable {
  /// The options; one that is nil has the library's default, which docs/ready.md lists.
  public struct Options: Sendable, Hashable {
    /// The upper bounds of the histograms' buckets, rising, in whole milliseconds (rounded up).
    public var buckets: [Duration]?
    /// How many methods are counted separately; further ones are counted as "other".
    public var maxMethods: Int?
    /// How many servers are counted separately; further ones are counted as "other".
    public var maxPeers: Int?

    /// Makes options with the library's defaults.
    public init(buckets: [Duration]? = nil) { self.buckets = buckets }

    var text: OptionText {
      var text = OptionText()
      if let buckets {
        text.set(json: "buckets_ms", "[\(buckets.map { "\($0.milliseconds)" }.joined(separator: ","))]")
      }
      text.set("max_methods", maxMethods)
      text.set("max_peers", maxPeers)
      return text
    }
  }

  /// The counters at one moment.
  public struct Snapshot: Sendable, Hashable, Decodable {
    /// The counters of the methods.
    public let methods: [Method]
    /// The counters of the servers.
    public let peers: [Peer]

    /// The counters of a method.
    public struct Method: Sendable, Hashable, Decodable {
      /// The method, "/package.Service/Method".
      public let method: String
      /// The target of the channel.
      public let target: String
      /// How many calls have begun.
      public let started: Int
      /// How many calls have not ended.
      public let inFlight: Int
      /// The messages to the server.
      public let sent: Traffic
      /// The messages from the server.
      public let received: Traffic
      /// The calls that have ended, by code.
      public let codes: [Ended]
    }
    /// Messages that went in one direction.
    public struct Traffic: Sendable, Hashable, Decodable {
      /// How many messages.
      public let messages: Int
      /// Their bytes.
      public let bytes: Int
    }
    /// The calls that have ended with one code.
    public struct Ended: Sendable, Hashable, Decodable {
      private let code: Int32
      /// The name of the code, such as "NOT_FOUND".
      public let name: String
      /// How many calls.
      public let count: Int
      /// How many seconds they took together.
      public let seconds: Double
      /// The histogram of the times.
      public let buckets: [Bucket]
      /// The code; nil: a number that gRPC does not define.
      public var status: Status.Code? { Status.Code(rawValue: code) }
    }
    /// A bucket of a histogram; its count includes those before it.
    public struct Bucket: Sendable, Hashable, Decodable {
      private let leMs: Int?
      /// How many calls took no longer than ``bound``.
      public let count: Int
      /// The upper bound; nil: none.
      public var bound: Duration? { leMs.map { .milliseconds($0) } }
    }
    /// The counters of a server.
    public struct Peer: Sendable, Hashable, Decodable {
      /// The target of the channel.
      public let target: String
      /// The server's address; "none" for calls that had no server.
      public let peer: String
      /// The calls that have ended, by code.
      public let codes: [Count]
      /// The connections to the server.
      public let connections: Connections
    }
    /// How many calls to a server ended with one code.
    public struct Count: Sendable, Hashable, Decodable {
      private let code: Int32
      /// The name of the code.
      public let name: String
      /// How many calls.
      public let count: Int
      /// The code; nil: a number that gRPC does not define.
      public var status: Status.Code? { Status.Code(rawValue: code) }
    }
    /// The connections to a server.
    public struct Connections: Sendable, Hashable, Decodable {
      /// How many were made.
      public let opened: Int
      /// How many were lost.
      public let lost: Int
      /// How many attempts to make one failed.
      public let failed: Int
    }
  }

  private let metrics: Handle
  /// The interceptor, to be added to channels and runtimes, which are then counted together.
  public let interception: Interception

  /// Makes counters.
  ///
  /// - Throws: ``PenstockError``: an option that is not allowed.
  public init(_ options: Options = Options()) throws(PenstockError) {
    let metrics = try make("the metrics", penstock_metrics_release) { metrics, error in
      penstock_metrics_new(options.text.finished, &metrics, &error)
    }
    self.metrics = metrics
    interception = Interception(
      try ReadyTable("the metrics") { table, _ in penstock_ready_metrics(metrics.pointer, table) })
  }

  /// The counters as they are now.
  public func snapshot() throws(PenstockError) -> Snapshot {
    try figures(
      Snapshot.self, try text("the metrics") { penstock_metrics_snapshot_json(metrics.pointer, &$0) })
  }

  /// The counters in Prometheus' text format 0.0.4.
  public func prometheusText() throws(PenstockError) -> String {
    try text("the metrics") { penstock_metrics_prometheus_text(metrics.pointer, &$0) }
  }
}
