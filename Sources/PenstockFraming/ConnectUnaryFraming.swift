import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockHTTP

/// The client side of Connect's unary calls ("Unary (Request-Response) RPCs"). The body is the message. An
/// error is JSON with an HTTP status other than 200. A method without side effects is called by GET, with the
/// message in the URL, unless the URL would be too long.
class ConnectUnaryFraming: ConnectFraming {
  private let request: Request
  final let defaults: RequestDefaults
  private var hasMessage = false
  /// The query of a GET with the message; nil: the request is a POST.
  private var query: ByteBuffer?
  /// The length in bytes and the compression of the request's body.
  final private(set) var length = 0
  private var encoding = Compression.identity
  /// The status with all trailers that ends the call if the answer's body has no fault.
  private var answer: Status?
  private var isError = false
  /// The length of the answer's body in bytes; -1: not known.
  private var bodyLength = -1
  private var hasBegun = false
  /// The answer's body; nil: it was not received completely yet.
  private var body: ByteBuffer?
  /// Whether the result of the call is known, so that further bytes of the body are ignored.
  private var isDone = false

  init(_ request: Request, _ defaults: RequestDefaults) {
    self.request = request
    self.defaults = defaults
    super.init(request, isPrefixed: false, opening: .whole)
  }

  // MARK: Request

  override var encodingName: StaticString { "content-encoding" }
  override var typeStart: StaticString { "application/" }

  override func addCommon(_ defaults: RequestDefaults, to fields: FieldList) -> Bool {
    addConnect(defaults, "application/proto", accepts: "accept-encoding", to: fields)
  }

  override func requestHeaders(
    _ request: Request, _ defaults: RequestDefaults, now: UInt64, into fields: FieldList
  ) -> Bool {
    if query != nil {
      request.settings.getUse = .sent
      return addGET(now, to: fields)
    }
    if wantsGET { request.settings.getUse = .passedOver }
    return addHeaders(
      request, defaults, owner: defaults.unary, encoding: encoding, length: length, now: now, into: fields)
  }

  /// Whether the call is sent as a GET if its URL is short enough. The property `idempotency` is checked
  /// first, for speed: it decides for most calls.
  private var wantsGET: Bool {
    request.settings.idempotency == .noSideEffects && defaults.rpc.wantsGET(request)
  }

  private func addGET(_ now: UInt64, to fields: FieldList) -> Bool {
    fields.clear()
    fields.hasNoBody = true
    let agent = request.labels?.userAgent.map { ByteView(rebasing: $0.view.dropLast()) }
    guard addPseudoHeaders("GET", defaults, to: fields),
      addPath(of: request, defaults, query: query, to: fields),
      defaults.addAccepted("accept-encoding", packed: true, to: fields),
      fields.add("user-agent", agent ?? defaults.userAgent.view)
    else { return false }
    if let authority = request.authorityView { fields.setValue(at: 3, authority) }
    return addTimeout(request.deadline.map { $0 > now ? $0 - now : 0 }, to: fields)
      && addCustom(of: request, to: fields)
  }

  override func encode(_ message: Message) -> FramedMessage {
    if hasMessage { return .failed(Status(.internal, "a unary call has more than one message")) }
    hasMessage = true
    if let framed = frameAsGET(message, compressed: false) { return framed }
    return sends == .identity || staysPlain(message) ? frame(message, compressed: false) : pack(message)
  }

  override func frame(_ bytes: ByteBuffer, compressed: Bool) -> FramedMessage {
    if compressed, let framed = frameAsGET(bytes, compressed: true) { return framed }
    encoding = compressed ? sends : .identity
    length = bytes.count
    if length > 0 { return .piece(BodyPiece(bytes)) }
    // The body has no bytes, so no sent byte can show that the message was sent. The message therefore counts
    // as sent with the headers.
    messagesInHeaders = 1
    return .inHeaders(size: 0, wireSize: 0)
  }

  /// Puts the message into the URL. nil: the request has to be a POST.
  private func frameAsGET(_ bytes: ByteBuffer, compressed: Bool) -> FramedMessage? {
    guard wantsGET else { return nil }
    let query = ByteBuffer()
    let most = defaults.mostQueryBytes - request.pathView.count
    switch ConnectQuery.write(
      bytes.view, encoding: subtype, compression: compressed ? sends : .identity, most: most, into: query)
    {
    case .written(let size):
      self.query = query
      messagesInHeaders = 1
      return .inHeaders(size: bytes.count, wireSize: size)
    case .tooLong: return nil
    case .noMemory: return .failed(Status(.resourceExhausted, "no memory to encode a message"))
    }
  }

  // MARK: Response

  override func responseHeaders(_ block: HeaderBlock, endsStream: Bool) -> ResponseStart {
    let start = takePlainHead(block) ?? readHead(block.fields, endsStream: endsStream)
    var most = limit
    switch start {
    case .informational, .ended, .foreign: return start
    case .statusInBody: most = max(limit, MessageDecoder.leastLastLimit)
    case .headers: break
    }
    hearsEnd = true
    bodyLength = block.length
    if bodyLength > most {
      return .ended(
        isError ? errorTooLarge() : status(.tooLarge(length: UInt32(clamping: bodyLength), limit: limit)))
    }
    decoder.expect(bodyLength >= 0 ? bodyLength : min(most, .max - 1) + 1, isCertain: bodyLength >= 0)
    return start
  }

  /// Whether a retry policy may send the request again after an answer with an error; by default it may.
  var mayRepeat: Bool { true }

  /// Takes a head with only the usual fields; nil: it has others.
  private func takePlainHead(_ block: HeaderBlock) -> ResponseStart? {
    guard block.isPlainHead(with: .proto), labels == nil else { return nil }
    httpStatus = 200
    answer = Status(.ok)
    return .headers(.none)
  }

  private func readHead(_ fields: Metadata, endsStream: Bool) -> ResponseStart {
    httpStatus = httpStatus(of: fields)
    if httpStatus / 100 == 1 && !endsStream { return .informational }
    let type = value(of: "content-type", in: fields)
    isError = httpStatus != 200 && hasError(type)
    if !isError, let status = notOurs(type, fields) { return endsStream ? .ended(status) : .foreign(status) }
    let answer = Status(isError ? code(ofHTTP: httpStatus) : .ok)
    answer.mayRetry = isError && mayRepeat
    self.answer = answer
    takeEncoding(of: fields)
    if case .unknown(let name) = receives {
      let text = sayUnsupported(name, ByteBuffer().say("the answer has"))
      return .ended(Status(isError ? answer.code : .internal, words: text))
    }
    guard isError else { return headers(fields, type, trailers: answer) }
    // The call gets no headers from this answer. So all metadata of the head goes into the status.
    var trailers: Metadata? = answer.trailers
    _ = copyCustom(fields, to: &trailers, trailers: answer)
    sayUnread(answer)
    return endsStream ? .ended(answer) : .statusInBody
  }

  /// Sets the message of an error whose body has not been read.
  func sayUnread(_ status: Status) {
    let text = ByteBuffer().say("the answer has no error that can be read: HTTP status ").say(httpStatus)
    _ = status.setMessage(text.view)
  }

  /// Whether the body of an answer with this content-type, and with an HTTP status other than 200, is an error.
  func hasError(_ type: ByteView?) -> Bool {
    ContentType.fit(type, typeStart, ("json" as StaticString).bytes) == .fits
  }

  /// Reads the body of an error into its status.
  func read(_ error: ByteBuffer, into status: Status) {
    _ = ConnectJSON.read(error: error.view, into: status)
  }

  /// The status for a fault of the body. If the HTTP status is an error, the status for it is used, because
  /// it explains more than the fault.
  private func answer(or fault: Status) -> Status { isError ? answer ?? fault : fault }

  /// The server's own status was not read for lack of memory. The HTTP status must not pass for it.
  override func noMemoryToReceive() -> Status {
    isError = false
    return super.noMemoryToReceive()
  }

  /// Ends the call because of a fault of the body. The rest of the body is not awaited, because it may never
  /// end.
  private func fail(_ fault: Status) -> BodyStep {
    isDone = true
    return .failed(answer(or: fault))
  }

  override func decode(_ bytes: ByteView) -> (consumed: Int, step: BodyStep) {
    if isDone { return (bytes.count, .needsMore) }
    hasBegun = true
    let (consumed, event) = decoder.push(bytes)
    switch event {
    case .needsMore: return (consumed, .needsMore)
    case .message(let whole, _):
      guard bodyLength >= 0, body == nil else { return (consumed, tooLarge()) }
      body = whole
      return (consumed, .needsMore)
    case .failed(let failure): return (consumed, fail(status(failure)))
    }
  }

  private func tooLarge() -> BodyStep {
    isDone = true
    if isError { return .failed(errorTooLarge()) }
    let text = ByteBuffer().say("a received message is over the limit of ").say(limit)
    return .failed(Status(.resourceExhausted, words: text.say(" bytes (max_receive_message_bytes)")))
  }

  /// The status of an error whose body is over the limit, as it was sent or decompressed.
  private func errorTooLarge() -> Status {
    let status = answer ?? Status(.resourceExhausted)
    status.setCode(.resourceExhausted)
    status.mayRetry = false
    let text = ByteBuffer().say("the answer has an error of more than ")
      .say(max(limit, MessageDecoder.leastLastLimit)).say(" bytes (max_receive_message_bytes): HTTP status ")
      .say(httpStatus)
    _ = status.setMessage(text.view)
    return status
  }

  override func space() -> UnsafeMutableRawBufferPointer? { bodyLength >= 0 ? super.space() : nil }
  /// Whether `bytes` are the whole body. A body of unknown length counts as whole if its first part has at
  /// most 4096 bytes.
  override func beginsWithMessage(_ bytes: ByteView) -> Bool {
    bodyLength >= 0 ? bytes.count >= bodyLength : bytes.count <= 4096 && !hasBegun
  }
  override func beginsWithTwo(_ bytes: ByteView, limit: Int) -> Bool { false }

  override func bodyEnds() -> BodyStep {
    if isDone { return .needsMore }
    isDone = true
    let content = body ?? decoder.cut()
    body = nil
    if content.count < bodyLength {
      return fail(failure(.lost(ByteBuffer().say("the body is cut off")), false))
    }
    // "Clients must not attempt to decompress zero-length HTTP response content."
    if case .known(let coding) = receives, coding != .identity, !content.isEmpty {
      return told(expand(content))
    }
    return told(.message(content, size: content.count))
  }

  override func proceed() -> BodyStep { told(super.proceed()) }

  /// Returns the step for a whole body. The body of an error contains a status.
  private func told(_ step: consuming BodyStep) -> BodyStep {
    guard isError, let answer else { return step }
    switch consume step {
    case .busy: return .busy
    case .message(let content, _): read(content, into: answer)
    case .failed(let fault):
      if fault.code == .resourceExhausted { return .trailers(errorTooLarge()) }
    case .needsMore, .trailers: break
    }
    return .trailers(answer)
  }

  // MARK: End

  override func status(_ end: StreamEnd, trailers: consuming Status?, deadlineHasPassed: Bool) -> Status {
    if let status = trailers { return status }
    if case .noMemory = end { return failure(end, deadlineHasPassed) }
    if let answer, isError || end.isComplete { return answer }
    return failure(end, deadlineHasPassed)
  }
}
