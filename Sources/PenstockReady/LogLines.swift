import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockClient

/// Logging: passes each event, as a line of JSON, to a function of the user. The callbacks of events that are
/// not logged are NULL, and cost nothing.
public final class LogLines: ReadyInterceptor {
  public typealias Write = @convention(c) (UnsafePointer<CChar>?, Int, UnsafeMutableRawPointer?) -> Void

  public struct Options {
    public var events: Events = .standard
    /// The names, in lower case, of headers whose values are not shown; nil: a default list.
    public var redacted: [ByteBuffer]?
    public var redactsBinary = false
    public var showsMetadata = true
    public var showsSizes = true
    /// The least level of the channel's events that are logged; nil: none is.
    public var channel: ConnectionNews.Level? = .warning

    public init() {}
  }

  /// A set of events.
  public struct Events: OptionSet, Sendable {
    public let rawValue: UInt32

    public init(rawValue: UInt32) { self.rawValue = rawValue }
    init(_ kind: EventKind) { rawValue = 1 << UInt32(kind.rawValue) }

    static var standard: Events { [Events(.start), Events(.headers), Events(.status), Events(.cancel)] }

    /// The event with this name; nil: there is no event of this name that can be logged.
    public init?(name: ByteView) {
      for kind in LogLines.kinds where bytesEqual(name, LogLines.name(kind)) {
        self.init(kind)
        return
      }
      return nil
    }
  }

  private let options: Options
  private let write: Write
  private let userData: UserData

  /// `hear`: passes an event of a channel to `log` (the ABI knows its form).
  public init(_ options: Options, _ write: Write, _ userData: UserData, hear: ConnectionCallback) {
    self.options = options
    self.write = write
    self.userData = userData
    var callbacks = Registration.Callbacks()
    let log: HopCallback = { handle, state in
      let (hop, this) = behind(handle, state, LogLines.self)
      this.log(hop)
      return next
    }
    func wants(_ kind: EventKind) -> HopCallback? { options.events.contains(Events(kind)) ? log : nil }
    callbacks.onStart = wants(.start)
    callbacks.onSend = wants(.send)
    callbacks.onHalfClose = wants(.halfClose)
    callbacks.onHeaders = wants(.headers)
    callbacks.onReceive = wants(.receive)
    callbacks.onStatus = wants(.status)
    callbacks.onCancel = wants(.cancel)
    if options.channel != nil { callbacks.onConnection = hear }
    super.init("logging", callbacks)
  }

  /// Writes the line of a channel's event, which has `level`. `length` is without the line's NUL.
  public func log(_ line: UnsafePointer<CChar>, _ length: Int, _ level: Int32) {
    if let least = options.channel, level >= least.rawValue { write(line, length, userData.pointer) }
  }

  private func log(_ hop: Hop) {
    let call = hop.call
    let kind = hop.currentEvent
    let path = hop.path
    let json = JSONText()
    json.object {
      json.member("time_ms", hop.platform.wallClock() / 1_000_000)
      json.member("call", call.id)
      json.member("event", LogLines.name(kind))
      json.member("method", ByteView(rebasing: path.view.dropLast()))
      if kind == .start {
        json.member("kind", call.request.kind.name)
        json.member("target", ByteView(rebasing: call.origin.target.view.dropLast()))
      }
      if let message = hop.message, options.showsSizes { json.member("bytes", UInt64(message.count)) }
      if let status = hop.status {
        json.member("code", UInt64(status.code.rawValue))
        json.member("name", status.code.name)
        json.member("message", status.message)
        let now = hop.platform.clock()
        json.member("elapsed_us", (now - min(now, call.measures.createdAt.value)) / 1000)
        json.member("attempts", call.measures.attempts.value)
        showWaits(call.knownValues, now, json)
      }
      if kind == .headers || hop.status != nil {
        json.key("peer")
        if let peer = call.connection?.peer { json.string(peer.view) } else { json.null() }
      }
      if options.showsMetadata, kind != .cancel, let metadata = hop.metadata {
        json.key("metadata")
        json.object { show(metadata, json) }
      }
    }
    let length = json.buffer.count
    guard json.isComplete, json.buffer.append(byte: 0), let text = json.buffer.view.baseAddress else {
      return
    }
    write(text.assumingMemoryBound(to: CChar.self), length, userData.pointer)
    withExtendedLifetime(json) {}
  }

  /// Writes how long the call's attempts have waited, by the reason.
  private func showWaits(_ values: CallValues?, _ now: UInt64, _ json: JSONText) {
    json.key("waited_us")
    json.object {
      json.member("name", (values?.waits.waited(for: .name, until: now) ?? 0) / 1000)
      json.member("connection", (values?.waits.waited(for: .connection, until: now) ?? 0) / 1000)
      json.member("slot", (values?.waits.waited(for: .slot, until: now) ?? 0) / 1000)
    }
  }

  /// Writes metadata as an object: names in the order in which they first occur, with all values of a name in
  /// one array.
  private func show(_ metadata: Metadata, _ json: JSONText) {
    for index in 0..<metadata.count {
      let name = metadata.name(at: index)
      guard metadata.index(of: name) == index else { continue }
      json.key(name)
      json.array {
        for other in index..<metadata.count where bytesEqual(metadata.name(at: other), name) {
          show(metadata.value(at: other), of: name, json)
        }
      }
    }
  }

  private func show(_ value: ByteView, of name: ByteView, _ json: JSONText) {
    let isBinary = HeaderRules.isBinary(name)
    if isBinary && options.redactsBinary || isRedacted(name) {
      json.string(("redacted" as StaticString).bytes)
    } else if isBinary {
      let encoded = ByteBuffer()
      if Base64.encode(value, padded: true, into: encoded) { json.string(encoded.view) } else { json.null() }
    } else {
      json.string(value)
    }
  }

  private func isRedacted(_ name: ByteView) -> Bool {
    if let redacted = options.redacted { return redacted.contains { bytesEqual($0.view, name) } }
    return bytesEqual(name, "authorization") || bytesEqual(name, "cookie") || bytesEqual(name, "set-cookie")
      || bytesEqual(name, "proxy-authorization") || bytesEqual(name, "x-api-key")
  }

  private static var kinds: [EventKind] {
    [.start, .send, .halfClose, .headers, .receive, .status, .cancel]
  }

  private static func name(_ kind: EventKind) -> StaticString {
    switch kind {
    case .start: "start"
    case .send: "send"
    case .halfClose: "half_close"
    case .headers: "headers"
    case .receive: "receive"
    case .status: "status"
    case .cancel: "cancel"
    case .none, .demand, .sent, .create, .destroy, .pick: "none"
    }
  }
}
