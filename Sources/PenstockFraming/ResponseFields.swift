import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLink
import PenstockHTTP

extension Status {
  /// The failure of an answer whose body has a status that is too large.
  public static var tooLarge: Status {
    let text = ByteBuffer().say("the received status, with its details and trailers, is over the limit of ")
      .say(Limits.statusInBodyBytes)
    return Status(.resourceExhausted, words: text.say(" bytes"))
  }
}

/// The functions that read an answer and are common to several protocols.
extension CommonFraming {
  public final func failure(_ end: StreamEnd, _ deadlineHasPassed: Bool) -> Status {
    let status = words(of: end, deadlineHasPassed)
    status.mayRetry = end.isFromElsewhere && !deadlineHasPassed
    return status
  }

  private func words(of end: StreamEnd, _ deadlineHasPassed: Bool) -> Status {
    switch end {
    case .trailers: return Status(.internal, "the trailers were lost")
    case .body:
      if isCut {
        let text = ByteBuffer().say("the stream ended in the middle of a message")
        return Status(.internal, words: sayCoding(text))
      }
      return decoder.lastFlag == 0
        ? Status(.internal, "the server closed the stream without sending trailers")
        : Status(.internal, "the body ended without its last frame, which has the status")
    // The cases from here on follow the table of codes in the section "Errors" of PROTOCOL-HTTP2, for a
    // client. A code that is not in the table gives INTERNAL, as RFC 9113 section 7 allows.
    case .cancelled(let words):
      // "When a call fails with CANCELLED status the client is encouraged to check whether the deadline has expired."
      if deadlineHasPassed {
        return Status(.deadlineExceeded, words: ByteBuffer().say("deadline exceeded: ").say(words.view))
      }
      return Status(.cancelled, words: words)
    // PROTOCOL-HTTP2: "... with additional error detail provided by runtime to indicate that the exhausted
    // resource is bandwidth". `words` ends with "too much traffic".
    case .tooMuch(let words): return Status(.resourceExhausted, words: words)
    case .insecure(let words): return Status(.permissionDenied, words: words)
    case .reset(let words): return Status(.internal, words: words)
    case .neverSent(let words), .unprocessed(let words), .refused(let words), .unanswered(let words),
      .lost(let words):
      return Status(.unavailable, words: words)
    case .broken(let words): return Status(.internal, words: words)
    case .answerTooLarge(let words): return Status(.resourceExhausted, words: words)
    case .requestTooLarge(let size, let limit):
      let text = ByteBuffer().say("the request headers have ").say(Int(size))
        .say(" bytes, over the limit of ").say(Int(limit)).say(" that the server has set")
      return Status(.resourceExhausted, words: text)
    case .noMemory: return Status(.resourceExhausted, "no memory for the call")
    }
  }

  /// The status of an answer in a protocol that has the status in the body. A status from the body
  /// (`trailers`) is used in any case, also if the stream has then ended with an error. `else`: the status to
  /// use if the body has none and is complete.
  final func statusInBody(
    _ end: StreamEnd, _ trailers: consuming Status?, else other: Status?, _ deadlineHasPassed: Bool
  ) -> Status {
    if let status = trailers { return status }
    guard end.isComplete else { return failure(end, deadlineHasPassed) }
    if let other, !isCut { return other }
    return failure(.body, false)
  }

  // MARK: Head

  /// Reads the head of an answer. A status in the head ends the call if the head is the whole answer, or if
  /// its HTTP status is an error: "if grpc-status was provided, it must be used".
  public final func start(_ fields: Metadata, endsStream: Bool) -> ResponseStart {
    httpStatus = httpStatus(of: fields)
    if httpStatus / 100 == 1 && !endsStream { return .informational }
    if endsStream || httpStatus != 200, let status = status(inHead: fields, isAll: false) {
      return .ended(status)
    }
    let type = value(of: "content-type", in: fields)
    if let status = notOurs(type, fields) { return endsStream ? .ended(status) : .foreign(status) }
    if endsStream, let status = status(inHead: fields, isAll: true) { return .ended(status) }
    takeEncoding(of: fields)
    coding = value(of: "content-encoding", in: fields).flatMap { ByteBuffer(copying: $0) }
    return headers(fields, type)
  }

  public final func value(of name: StaticString, in fields: Metadata) -> ByteView? {
    fields.index(of: name.bytes).map { fields.value(at: $0) }
  }

  /// The status of an answer that does not belong to this protocol; nil: the answer belongs to it.
  final func notOurs(_ type: ByteView?, _ fields: Metadata) -> Status? {
    var code = code(ofHTTP: httpStatus)
    if httpStatus == 200 {
      switch fit(type) {
      case .fits: return nil
      case .otherEncoding: code = .internal
      case .foreign: code = .unknown
      }
    }
    let text = ByteBuffer().say("the answer is not ").say(title)
    if code == .internal, httpStatus == 200 {
      text.say(" in the request's encoding \"").say(subtype ?? ("proto" as StaticString).bytes).say("\"")
    }
    text.say(": HTTP status ").say(httpStatus)
    if let type {
      text.say(", content-type \"").say(printable: type, limit: 80).say("\"")
    } else {
      text.say(", no content-type")
    }
    if httpStatus == 407 { text.say("; a proxy asks for a user, or did not accept the user of its URL") }
    let status = Status(code, words: text)
    status.mayRetry = httpStatus != 200
    addAll(fields, to: status)
    return status
  }

  /// Adds the content-encoding of the answer, if there is one, to the text about a body that can't be read.
  final func sayCoding(_ text: ByteBuffer) -> ByteBuffer {
    guard let coding, !equalIgnoringCase(coding.view, "identity") else { return text }
    return text.say("; a proxy may have compressed the answer: its content-encoding is \"")
      .say(printable: coding.view, limit: 40).say("\"")
  }

  final func takeEncoding(of fields: Metadata) {
    guard let value = value(of: encodingName, in: fields), !value.isEmpty else { return }
    if let own = compressors?.find(value) {
      receives = .known(.named(own.name))
    } else if let found = Compression(named: value), found != .zstd || Zstd.isLoaded {
      receives = .known(found)
    } else {
      receives = .unknown(ByteBuffer(copying: value) ?? ByteBuffer())
    }
  }

  /// Adds to `text` that the answer's compression, `name`, is none that this library has.
  final func sayUnsupported(_ name: ByteBuffer, _ text: ByteBuffer) -> ByteBuffer {
    text.say(" the unsupported ").say(encodingName).say(" \"").say(printable: name.view, limit: 40)
      .say("\" (supported: ")
    if let compressors { text.say(compressors.names.view) }
    return text.say(Compression.names(withZstd: Zstd.isLoaded)).say(")")
  }

  /// Makes the metadata from the head of an answer. `trailers`: a status that gets the fields whose names
  /// begin with "trailer-"; nil: such fields are ordinary metadata.
  public final func headers(_ fields: Metadata, _ type: ByteView?, trailers: Status? = nil) -> ResponseStart {
    var metadata: Metadata?
    // The usual content-type is not added to the metadata.
    if let type, !isUsual(type) {
      let made = Metadata()
      metadata = made
      guard made.add(("content-type" as StaticString).bytes, type) == .ok else {
        return .ended(Status(.resourceExhausted, "no memory for the response headers"))
      }
    }
    switch copyCustom(fields, to: &metadata, trailers: trailers) {
    case .done: return .headers(metadata ?? .none)
    case .noMemory: return .ended(Status(.resourceExhausted, "no memory for the response headers"))
    case .malformed(let name):
      let text = ByteBuffer().say("the response header \"").say(name.view).say("\" is not base64")
      return .ended(Status(.internal, words: text))
    }
  }

  // MARK: gRPC

  final var grpcStatusName: ByteView { ("grpc-status" as StaticString).bytes }

  /// The number in the field ":status"; 0: the field is malformed.
  final func httpStatus(of fields: Metadata) -> Int {
    guard let index = fields.index(of: (":status" as StaticString).bytes) else { return 0 }
    let value = fields.value(at: index)
    guard value.count == 3 else { return 0 }
    var number = 0
    for byte in value {
      guard byte >= 0x30, byte <= 0x39 else { return 0 }
      number = number * 10 + Int(byte - 0x30)
    }
    return number
  }

  /// The status in trailers or in a trailers-only response.
  final func grpcStatus(of fields: Metadata) -> Status {
    let given = givenStatus(fields)
    let status = Status(StatusMapping.fromTrailers(grpcStatus: given, httpStatus: httpStatus))
    if let index = fields.index(of: ("grpc-message" as StaticString).bytes) {
      let decoded = ByteBuffer()
      if PercentCoding.decode(fields.value(at: index), into: decoded) { _ = status.setMessage(decoded.view) }
    }
    if given == nil && status.message.isEmpty {
      say(ByteBuffer().say("the trailers have no grpc-status: HTTP status ").say(httpStatus), status)
    } else if let given, status.message.isEmpty, StatusCode.parse(given) == nil {
      let text = ByteBuffer().say("malformed or undefined grpc-status \"").say(printable: given, limit: 20)
        .say("\"")
      say(text, status)
    }
    status.mayRetry = true
    if status.code != .ok { status.pushback = Pushback(fields) }
    addAll(fields, to: status)
    if let index = fields.index(of: Status.detailsName) { addDetails(fields.value(at: index), to: status) }
    return status
  }

  /// The value of "grpc-status"; nil: there is none. If there are several, it is the first that is not OK: two that
  /// contradict each other never make a success.
  private func givenStatus(_ fields: Metadata) -> ByteView? {
    var given: ByteView?
    for index in 0..<fields.count where bytesEqual(fields.name(at: index), grpcStatusName) {
      given = fields.value(at: index)
      if let value = given, StatusCode.parse(value) != .ok { break }
    }
    return given
  }

  private func say(_ text: ByteBuffer, _ status: Status) { _ = status.setMessage(text.view) }

  /// Reads the details from the field "grpc-status-details-bin". The field also stays in the trailers,
  /// decoded from base64 if possible.
  private func addDetails(_ wire: ByteView, to status: Status) {
    let decoded = ByteBuffer()
    if Base64.decode(HeaderRules.trimmed(wire), into: decoded) == .ok {
      status.takeDetails(decoded.view)
    } else {
      status.takeMalformedDetails(wire)
    }
  }

  /// Copies the metadata of `fields` to the trailers of `status`. A "-bin" value that is not valid base64 is
  /// left out, because the status is valid without it.
  final func addAll(_ fields: Metadata, to status: Status) {
    var trailers: Metadata? = status.trailers
    _ = copyCustom(fields, to: &trailers, trailers: nil)
  }

  // MARK: Metadata

  enum Copied {
    case done
    case malformed(ByteBuffer)
    case noMemory
  }

  /// Copies the custom metadata, without the reserved names, and decodes "-bin" values. Makes `headers` if
  /// there is anything to copy. Returns the first malformed field; all other fields are copied. `trailers`: a
  /// status that gets the fields whose names begin with "trailer-", without this prefix; nil: such fields are
  /// copied like all others. A malformed trailer is not reported.
  final func copyCustom(_ fields: Metadata, to headers: inout Metadata?, trailers: Status?) -> Copied {
    var outcome = Copied.done
    let prefix = ("trailer-" as StaticString).bytes
    for index in 0..<fields.count {
      var name = fields.name(at: index)
      var isTrailer = false
      if trailers != nil, name.count > prefix.count,
        bytesEqual(ByteView(rebasing: name[..<prefix.count]), prefix)
      {
        name = ByteView(rebasing: name[prefix.count...])
        isTrailer = true
      }
      guard HeaderRules.isValidName(name), !HeaderRules.isReserved(name), !isOwn(name) else { continue }
      let metadata = isTrailer ? trailers?.trailers ?? Metadata() : headers ?? Metadata()
      if !isTrailer { headers = metadata }
      let value = HeaderRules.trimmed(fields.value(at: index))
      guard HeaderRules.isBinary(name) else {
        if metadata.add(name, value) != .ok { return .noMemory }
        continue
      }
      let before = outcome
      copyBinary(name, value, to: metadata, &outcome)
      if case .noMemory = outcome { return .noMemory }
      // Malformed trailers are left out, as in the other protocols.
      if isTrailer { outcome = before }
    }
    return outcome
  }

  private func copyBinary(
    _ name: ByteView, _ value: ByteView, to metadata: Metadata, _ outcome: inout Copied
  ) {
    let scratch = ByteBuffer()
    HeaderRules.forEachBinaryValue(value) { part in
      scratch.removeAll(keepingCapacity: true)
      switch Base64.decode(part, into: scratch) {
      case .ok: if metadata.add(name, scratch.view) != .ok { outcome = .noMemory }
      case .malformed:
        if case .done = outcome { outcome = .malformed(ByteBuffer(copying: name) ?? ByteBuffer()) }
      case .noMemory: outcome = .noMemory
      }
    }
  }
}
