internal import CPenstock

/// Gives each event of calls, and what happens to a channel, as a line of JSON. docs/ready.md lists what is in a line.
public struct CallLog: Sendable {
  /// The events that a line may be about.
  public enum Event: String, Sendable, CaseIterable {
    /// A call starts.
    case start
    /// A message goes to the server.
    case send
    /// The caller is done sending.
    case halfClose = "half_close"
    /// The response headers come.
    case headers
    /// A message comes from the server.
    case receive
    /// The call ends with a status.
    case status
    /// Something other than the server has ended the call.
    case cancel
  }
  /// The level of an event of a channel.
  public enum ChannelLevel: String, Sendable, CaseIterable {
    /// Each step, for finding a fault.
    case debug
    /// Usual events.
    case info
    /// Events that may need a look.
    case warning
    /// Faults.
    case error
    /// No event of the channel has this level.
    case none
  }

  /// The options; one that is nil has the library's default, which docs/ready.md lists.
  public struct Options: Sendable, Hashable {
    /// The events of calls that are logged.
    public var events: [Event]?
    /// The names of metadata whose values are shown as "redacted".
    public var redact: [String]?
    /// Whether the values of names that end in "-bin" are redacted, too.
    public var redactsBinary: Bool?
    /// Whether lines have the metadata.
    public var hasMetadata: Bool?
    /// Whether lines have the sizes of messages.
    public var hasSizes: Bool?
    /// The least level of the channel's events that are logged, too.
    public var channel: ChannelLevel?

    /// Makes options with the library's defaults.
    public init(events: [Event]? = nil) { self.events = events }

    var text: OptionText {
      var text = OptionText()
      text.set("events", events?.map(\.rawValue))
      text.set("redact", redact)
      text.set("redact_binary", redactsBinary)
      text.set("metadata", hasMetadata)
      text.set("messages", hasSizes.map { $0 ? "sizes" : "none" })
      text.set("channel", channel?.rawValue)
      return text
    }
  }

  /// The interceptor, to be added to channels and runtimes.
  public let interception: Interception

  /// Makes an interceptor that gives its lines to `write`, which runs on the runtime's thread and must not wait.
  ///
  /// - Throws: ``PenstockError``: an option that is not allowed.
  public init(_ options: Options = Options(), write: @escaping @Sendable (String) -> Void)
    throws(PenstockError)
  {
    typealias Write = @Sendable (String) -> Void
    interception = Interception(
      try ReadyTable("the log") { table, error in
        penstock_ready_logging(
          options.text.finished,
          { line, length, data in
            guard let write = KeptFunction<Write>.of(data) else { return }
            write(String(decoding: UnsafeRawBufferPointer(start: line, count: length), as: UTF8.self))
          }, KeptFunction<Write>.keep(write), { KeptFunction<Write>.release($0) }, table, &error)
      })
  }
}
