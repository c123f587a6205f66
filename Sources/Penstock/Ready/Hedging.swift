internal import CPenstock

/// Sends a unary call again while it has no answer, and takes the first answer (gRFC A6). docs/ready.md says more.
///
/// It is for methods that a server may carry out twice. Calls of other kinds pass by.
public struct Hedging: Sendable {
  /// The options; one that is nil has the library's default, which docs/ready.md lists.
  public struct Options: Sendable, Hashable {
    /// How often a call is sent at most, 2 to 5.
    public var maxAttempts: Int?
    /// How long an attempt may have no answer before the next one is sent; zero: all are sent at once.
    public var delay: Duration?
    /// The codes after which the other attempts go on, and the next one is sent at once.
    public var nonFatalCodes: [Status.Code]?
    /// Holds further attempts back while most attempts fail; nil: only `retryThrottling` of the service config does.
    public var throttle: Throttle?

    /// Makes options with the library's defaults.
    public init(maxAttempts: Int? = nil, delay: Duration? = nil) {
      self.maxAttempts = maxAttempts
      self.delay = delay
    }

    var text: OptionText {
      var text = OptionText()
      text.set("max_attempts", maxAttempts)
      text.set("delay_ms", delay)
      text.set("non_fatal_codes", nonFatalCodes?.map(\.description))
      text.set("throttle", throttle?.text)
      return text
    }
  }

  /// A throttle: an attempt that fails takes a token, one that succeeds brings a part of one back, and with half of the
  /// tokens or fewer only first attempts are sent.
  public struct Throttle: Sendable, Hashable {
    /// How many tokens there are at first and at most; nil: 10.
    public var maxTokens: Int?
    /// How many tokens a success brings back; nil: 0.1.
    public var tokenRatio: Double?

    /// Makes a throttle.
    public init(maxTokens: Int? = nil, tokenRatio: Double? = nil) {
      self.maxTokens = maxTokens
      self.tokenRatio = tokenRatio
    }

    var text: OptionText {
      var text = OptionText()
      text.set("max_tokens", maxTokens)
      text.set("token_ratio", tokenRatio)
      return text
    }
  }

  /// The figures of all calls at one moment.
  public struct Snapshot: Sendable, Hashable, Decodable {
    /// The calls that were hedged.
    public let calls: Int
    /// The attempts that were sent: each is open, or has won, failed or been cancelled.
    public let sent: Int
    /// The attempts that have no answer yet.
    public let open: Int
    /// The attempts that have decided their call.
    public let won: Int
    /// The attempts after which others went on, or the call failed.
    public let failed: Int
    /// The attempts that ended because another one has won, or the call has ended.
    public let cancelled: Int
    /// The attempts after the first one of their call.
    public let hedges: Int
    /// How many of ``hedges`` have won.
    public let hedgesWon: Int
    /// The calls that were not sent again because of a throttle.
    public let throttled: Int
    /// The calls that were not sent again because the server did not want it.
    public let refused: Int
    /// How the throttle of the options stands; nil: there is none.
    public let throttle: ChannelStatistics.Throttle?
  }

  private let table: ReadyTable
  /// The interceptor, to be added to channels and runtimes, which then share the throttle and the figures.
  public let interception: Interception

  /// Makes an interceptor.
  ///
  /// - Parameters:
  ///   - options: see ``Options``.
  ///   - other: the channel to which the attempts after the first go, of the same runtime and loop; nil: the call's
  ///     own. It must not be the channel of the calls, nor lead back to it: each would keep the other.
  /// - Throws: ``PenstockError``: an option that is not allowed.
  public init(_ options: Options = Options(), other: Channel? = nil) throws(PenstockError) {
    let table = try ReadyTable("hedging") { table, error in
      penstock_ready_hedging(options.text.finished, other?.handle.pointer, table, &error)
    }
    self.table = table
    interception = Interception(table)
  }

  /// The figures as they are now.
  public func snapshot() throws(PenstockError) -> Snapshot {
    try figures(
      Snapshot.self,
      try text("hedging") { json in table.with { penstock_hedging_stats_json($0, &json) } })
  }
}
