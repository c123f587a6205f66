internal import CPenstock

/// The options of a call. An option that is nil is left to the channel.
public struct CallOptions: Sendable, Hashable {
  /// How safe it is to make a call twice.
  public enum Idempotency: String, Sendable, CaseIterable {
    /// Nothing is known.
    case unknown
    /// A second call has no further effect.
    case idempotent
    /// The call changes nothing; Connect makes a unary one by HTTP GET.
    case noSideEffects = "no_side_effects"
  }

  /// The time from the call's creation to its deadline.
  public var timeout: Duration?
  /// The metadata of the request.
  public var metadata = Metadata()
  /// Header fields that are sent over TLS only; without TLS the call ends with UNAUTHENTICATED.
  public var credentials: [String: String] = [:]
  /// How safe it is to make the call a second time.
  public var idempotency: Idempotency?
  /// Whether the call waits, instead of failing, while the channel can't connect.
  public var waitsForReady: Bool?
  /// The authority of the request.
  public var authority: String?
  /// The name of the messages' encoding in the content-type, such as "json"; nil: the name that the codec has.
  public var contentSubtype: String?
  /// The compression of sent messages.
  public var compression: Compression?
  /// The size from which messages are compressed, in bytes.
  public var compressionMinBytes: Int?
  /// The limit of one received message after decompression, in bytes.
  public var maxReceiveMessageBytes: Int?
  /// The limit of one sent message, in bytes.
  public var maxSendMessageBytes: Int?
  /// The size of the buffer in which sent messages wait for the transport, in bytes; a message counts as 256 more.
  public var sendBufferBytes: Int?
  /// Whether the call keeps a trace.
  public var trace: Trace?
  /// The parts that the call takes over from the ``CallContext`` in which it is made; nothing, unless it is set.
  public var inherited: CallContext.Parts = []

  /// Makes options; those that are not given are left to the channel.
  public init(
    timeout: Duration? = nil, metadata: Metadata = Metadata(), waitsForReady: Bool? = nil
  ) {
    self.timeout = timeout
    self.metadata = metadata
    self.waitsForReady = waitsForReady
  }

  /// The options as JSON, without the metadata, which has bytes of its own.
  func text(subtype: String?) -> OptionText {
    var text = OptionText()
    text.set("deadline_ms", timeout.map { Swift.min(Swift.max(.zero, $0), Self.longest) })
    if !credentials.isEmpty {
      var fields = OptionText()
      for (name, value) in credentials { fields.set(name, value) }
      text.set("credentials", fields)
    }
    text.set("idempotency", idempotency?.rawValue)
    text.set("wait_for_ready", waitsForReady)
    text.set("authority", authority)
    text.set("content_subtype", contentSubtype ?? subtype)
    text.set("compression", compression?.rawValue)
    text.set("compression_min_bytes", compressionMinBytes)
    text.set("max_receive_message_bytes", maxReceiveMessageBytes)
    text.set("max_send_message_bytes", maxSendMessageBytes)
    text.set("send_buffer_bytes", sendBufferBytes)
    text.set(json: "trace", trace?.text)
    return text
  }

  /// About 31 years, which is as good as no limit: the library refuses much longer times.
  private static let longest = Duration.seconds(1_000_000_000)

  /// Makes the options of the C API; nil: the channel decides everything.
  func made(
    subtype: String?, on channel: ChannelOptions, _ captured: Captured? = nil
  ) throws(PenstockError) -> Handle? {
    var options = self
    var scope: Handle?
    if !inherited.isEmpty, let context = CallContext.current {
      if inherited.contains(.deadline), let left = context.timeout {
        options.timeout = min(left, timeout ?? channel.defaultTimeout ?? left)
      }
      if inherited.contains(.cancellation) { scope = try context.scope() }
    }
    let text = options.text(subtype: subtype)
    if text.isEmpty && metadata.isEmpty && scope == nil && captured == nil { return nil }
    let made = try make("the call's options", penstock_call_options_release) { options, error in
      penstock_call_options_new(text.finished, &options, &error)
    }
    if !metadata.isEmpty {
      let request = penstock_call_options_request(made.pointer)
      try metadata.append(to: penstock_request_metadata(request))
    }
    if let scope {
      try attempt("the call's scope") { _ in
        penstock_call_options_set_cancel_scope(made.pointer, scope.pointer)
      }
    }
    try captured?.keep(in: made.pointer)
    return made
  }
}

/// The compression of sent messages.
public enum Compression: String, Sendable, CaseIterable {
  /// No compression.
  case identity
  /// The gzip format (RFC 1952).
  case gzip
  /// The zlib format (RFC 1950).
  case deflate
  /// Needs the system's libzstd.so.1, which is loaded then.
  case zstd
}

/// Whether calls keep a trace of their events.
public enum Trace: Sendable, Hashable {
  /// No trace.
  case off
  /// A trace of so many events, the latest ones; 1 to 65536.
  case events(Int)
  /// A trace of the latest 256 events.
  public static let on = Trace.events(256)

  var text: String {
    switch self {
    case .off: "false"
    case .events(let count): "{\"events\":\(count)}"
    }
  }
}
