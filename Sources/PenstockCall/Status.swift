import PenstockWire

/// The status with which a call ended: code, message, details, trailers (gRPC "Status", google.rpc.Status).
///
/// `code`, `message` and the details are authoritative; "grpc-status-details-bin" among the trailers only
/// repeats them. That field stays as the server sent it until one of the three is changed; then it is written
/// anew.
public final class Status {
  public private(set) var code: StatusCode
  /// The message in UTF-8, followed by a NUL; nil: empty.
  private var text: ByteBuffer?
  /// The trailers. They are made at the first use, unless the status is read-only.
  public var trailers: Metadata {
    get {
      if let made { return made }
      if isReadOnly { return .none }
      let fresh = Metadata()
      made = fresh
      return fresh
    }
    set { made = newValue }
  }
  private var made: Metadata?
  private var details = DetailList()
  /// Whether the server's grpc-status-details-bin could not be decoded; its raw bytes stay readable in the
  /// trailers.
  public private(set) var detailsAreMalformed = false
  /// The first bytes of an answer that belongs to no RPC, such as a proxy's page, made printable; nil: the answer
  /// had no such body. For people who read the status as JSON.
  public var body: ByteBuffer?
  /// Whether a cancel, the deadline or the closing of the channel has made this status; its code can't be
  /// changed then.
  public var isLocal = false
  /// Whether the request may be repeated after this status. The code that knows how the attempt ended sets
  /// it.
  public var canRepeat = Repeat.no
  public var pushback = Pushback.none
  /// Whether a retry policy may repeat the request after this status: the server has sent it, or the network has failed.
  /// False if this library has found a fault in the request or in an answer, which it would find again.
  public var mayRetry = false
  public var isReadOnly = false {
    willSet { if newValue { settleTrailers() } }
    didSet { made?.isReadOnly = isReadOnly }
  }

  public init(_ code: StatusCode) {
    self.code = code
  }

  public convenience init(_ code: StatusCode, _ message: StaticString) {
    self.init(code)
    _ = setMessage(message.bytes)
  }

  public convenience init(_ code: StatusCode, _ message: ByteView) {
    self.init(code)
    _ = setMessage(message)
  }

  /// Makes a status whose message is the parts, one after another. If memory runs out, the message is
  /// shorter.
  public convenience init(_ code: StatusCode, parts: ByteView...) {
    self.init(code)
    let whole = ByteBuffer()
    for part in parts { _ = whole.append(part) }
    _ = setMessage(whole.view)
  }

  public func setCode(_ code: StatusCode) {
    // A hop has changed the code, so the status does not say any more how the attempt ended.
    if code != self.code { canRepeat = .no }
    self.code = code
    showDetails()
  }

  public var message: ByteView {
    text.map { ByteView(rebasing: $0.view.dropLast()) } ?? ByteView(start: nil, count: 0)
  }

  /// Sets the message; bytes that are not UTF-8 become U+FFFD. Returns false if there is no memory; the
  /// message is then unchanged.
  public func setMessage(_ message: ByteView) -> Bool {
    if message.isEmpty {
      text = nil
    } else {
      let fresh = ByteBuffer()
      guard UTF8Repair.repair(message, into: fresh), fresh.append(byte: 0) else { return false }
      text = fresh
    }
    showDetails()
    return true
  }

  /// Adds `words` to the message. If there is no memory, the message is unchanged.
  func add(_ words: StaticString) {
    let whole = ByteBuffer()
    if whole.append(message), whole.append(words.bytes) { _ = setMessage(whole.view) }
  }

  // MARK: - Details

  public var detailCount: Int { details.count }

  /// The type URL (followed by a NUL) and the value of the detail at `index`.
  public func detail(at index: Int) -> (typeURL: ByteView, value: ByteView)? {
    details.detail(at: index)
  }

  /// The index of the first detail, from `start` on, with this type URL. If `wanted` has no '/', only the
  /// part of a detail's URL behind its last '/' is compared.
  public func findDetail(_ wanted: ByteView, from start: Int = 0) -> Int? {
    let isBare = !wanted.contains(0x2f)
    for index in start..<max(start, detailCount) {
      guard let detail = detail(at: index) else { return nil }
      if Status.matches(detail.typeURL, wanted, isBare: isBare) { return index }
    }
    return nil
  }

  private static func matches(_ typeURL: ByteView, _ wanted: ByteView, isBare: Bool) -> Bool {
    guard isBare, let slash = typeURL.lastIndex(of: 0x2f) else { return bytesEqual(typeURL, wanted) }
    return bytesEqual(ByteView(rebasing: typeURL[(slash + 1)...]), wanted)
  }

  public func addDetail(typeURL: ByteView, value: ByteView) -> Bool {
    guard details.append(typeURL, value) else { return false }
    forgetMalformed()
    showDetails()
    return true
  }

  /// Sets the value of the first detail with this type URL (`findDetail`), or adds such a detail. Returns
  /// false if there is no memory.
  public func setDetail(typeURL: ByteView, value: ByteView) -> Bool {
    guard let index = findDetail(typeURL) else { return addDetail(typeURL: typeURL, value: value) }
    guard let changed = details.changed({ $0 == index ? value : $1.value }) else { return false }
    details = changed
    showDetails()
    return true
  }

  /// Removes every detail with this type URL (`findDetail`). Returns false if there is none, or no memory.
  public func removeDetails(_ typeURL: ByteView) -> Bool {
    guard findDetail(typeURL) != nil else { return false }
    let isBare = !typeURL.contains(0x2f)
    let kept = details.changed { _, detail in
      Status.matches(detail.typeURL, typeURL, isBare: isBare) ? nil : detail.value
    }
    guard let kept else { return false }
    details = kept
    showDetails()
    return true
  }

  public func clearDetails() {
    details = DetailList()
    forgetMalformed()
    showDetails()
  }

  /// Decodes the details from a google.rpc.Status, and ignores its other fields. `encoded` is the server's
  /// value of "grpc-status-details-bin" after base64 decoding. The trailers keep it, even if it does not
  /// decode.
  public func takeDetails(_ encoded: ByteView) {
    _ = trailers.set(Status.detailsName, encoded)
    if !StatusDetails.forEach(in: encoded, { details.append($0, $1) }) {
      details = DetailList()
      detailsAreMalformed = true
    }
  }

  /// Puts the details field that the server has sent into the trailers unchanged, because it is not valid
  /// base64.
  public func takeMalformedDetails(_ wire: ByteView) {
    detailsAreMalformed = true
    _ = trailers.set(Status.detailsName, wire)
  }

  /// Appends code, message and details to `out`, as an encoded google.rpc.Status. Returns false if there is
  /// no memory.
  public func encodeDetails(into out: ByteBuffer) -> Bool {
    StatusDetails.encode(
      code: code.rawValue, message: message, detailCount: detailCount,
      detail: { index in
        let none = ByteView(start: nil, count: 0)
        return self.detail(at: index) ?? (none, none)
      }, into: out)
  }

  public static var detailsName: ByteView { ("grpc-status-details-bin" as StaticString).bytes }

  /// Adds the details field to the trailers if it is missing, which happens when all trailers were replaced
  /// at once.
  public func settleTrailers() {
    guard !isReadOnly, detailCount > 0, trailers.index(of: Status.detailsName) == nil else { return }
    showDetails()
  }

  private func forgetMalformed() {
    guard detailsAreMalformed else { return }
    detailsAreMalformed = false
    _ = trailers.remove(Status.detailsName)
  }

  /// Updates "grpc-status-details-bin" in the trailers after a change, or removes it if there are no details.
  /// A field that could not be decoded stays as the server sent it.
  private func showDetails() {
    if details.isEmpty {
      if let made, made.count > 0, !detailsAreMalformed { _ = made.remove(Status.detailsName) }
      return
    }
    let encoded = ByteBuffer()
    // A missing details field is better than one that contradicts the status.
    guard encodeDetails(into: encoded), trailers.set(Status.detailsName, encoded.view) == .ok else {
      _ = trailers.remove(Status.detailsName)
      return
    }
  }

  /// A copy of the status. If memory runs out, the copy lacks some parts, but it always has the same code.
  public func copy() -> Status {
    let other = Status(code, message)
    other.details = details.copy()
    other.detailsAreMalformed = detailsAreMalformed
    other.body = body
    if let made { other.made = made.copy() }
    return other
  }
}
