import PenstockWire

/// How a call ended: code, message, details, trailers (gRPC "Status", google.rpc.Status).
public final class Status {
  public private(set) var code: StatusCode
  /// UTF-8, followed by a NUL in its storage.
  private let text = ByteBuffer()
  public var trailers = Metadata()
  /// type URL, value, type URL, value...
  private var details: [ByteBuffer] = []
  /// grpc-status-details-bin came, but did not decode; the raw bytes stay readable in the trailers.
  public var detailsAreMalformed = false
  /// A caller's cancel, a deadline, a closed channel: its code is fixed.
  public var isLocal = false
  public var isReadOnly = false {
    didSet { trailers.isReadOnly = isReadOnly }
  }

  public init(_ code: StatusCode) {
    self.code = code
    _ = setMessage(ByteView(start: nil, count: 0))
  }

  public convenience init(_ code: StatusCode, _ message: StaticString) {
    self.init(code)
    _ = setMessage(message.bytes)
  }

  public convenience init(_ code: StatusCode, _ message: ByteView) {
    self.init(code)
    _ = setMessage(message)
  }

  /// Composes a message from parts; without memory it stays shorter.
  public convenience init(_ code: StatusCode, parts: ByteView...) {
    self.init(code)
    let whole = ByteBuffer()
    for part in parts { _ = whole.append(part) }
    _ = setMessage(whole.view)
  }

  public func setCode(_ code: StatusCode) { self.code = code }

  public var message: ByteView {
    text.count == 0 ? ByteView(start: nil, count: 0) : ByteView(rebasing: text.view[0..<text.count - 1])
  }

  /// What is not UTF-8 is repaired with U+FFFD. False: no memory, unchanged.
  public func setMessage(_ message: ByteView) -> Bool {
    let fresh = ByteBuffer()
    guard UTF8Repair.repair(message, into: fresh), fresh.append(byte: 0) else { return false }
    text.exchange(with: fresh)
    return true
  }

  public var detailCount: Int { details.count / 2 }

  /// The type URL (a NUL follows it) and the value.
  public func detail(at index: Int) -> (typeURL: ByteView, value: ByteView)? {
    guard index >= 0, index < detailCount else { return nil }
    let url = details[index * 2].view
    return (ByteView(rebasing: url[0..<url.count - 1]), details[index * 2 + 1].view)
  }

  public func addDetail(typeURL: ByteView, value: ByteView) -> Bool {
    guard let url = ByteBuffer(copying: typeURL), url.append(byte: 0), let bytes = ByteBuffer(copying: value)
    else {
      return false
    }
    details.append(url)
    details.append(bytes)
    return true
  }

  public func clearDetails() { details.removeAll() }

  /// Without memory the copy has less than the original, never another code.
  public func copy() -> Status {
    let other = Status(code, message)
    other.details = details
    other.detailsAreMalformed = detailsAreMalformed
    if let copied = trailers.copy() { other.trailers = copied }
    return other
  }
}
