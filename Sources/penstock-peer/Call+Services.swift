import PenstockWire

/// Implements the methods. `take` is called with each message, and `takeEnd` at the client's half-close.
extension Call {
  func take(_ message: ByteBuffer, _ isCompressed: Bool) {
    var message = message
    if isCompressed {
      guard requestCoding == .gzip else {
        return end(.internal, "a compressed message without grpc-encoding")
      }
      let plain = ByteBuffer()
      switch Gzip.decompress(message.view, into: plain, limit: session?.options.maxMessageBytes ?? 0) {
      case .done: message = plain
      case .tooLarge: return end(.resourceExhausted, "the request message is larger than the limit")
      case .malformed: return end(.internal, "the request message does not decompress")
      case .noMemory: return end(.resourceExhausted, "no memory")
      }
    }
    if method.takesOne {
      // "Request cardinality violation: UNIMPLEMENTED" (gRPC, "Status codes and their use").
      if request != nil { return end(.unimplemented, "more than one request message") }
      request = message
      requestWasCompressed = isCompressed
      return
    }
    switch method {
    case .streamingInput: takeInput(message.view, isCompressed)
    case .fullDuplex: answer(message, isCompressed)
    case .halfDuplex: gather(message.view, framed: true)
    case .echoClientStream: if knobs.counts { total += 1 } else { gather(message.view, framed: false) }
    case .echoBidi: reply(Reply(body: message, times: 1))
    case .sayHelloBidi: greet(message.view, times: 1)
    case .emptyCall, .unaryCall, .cacheableUnary, .streamingOutput, .echoUnary, .echoServerStream, .sayHello,
      .sayHelloStream, .healthCheck, .healthWatch, .unknownMethod, .unknownService:
      end(.unimplemented, "no such method")
    }
  }

  func takeEnd() {
    if method.takesOne {
      guard let request else { return end(.unimplemented, "no request message") }
      self.request = nil
      return answer(request, requestWasCompressed)
    }
    switch method {
    case .streamingInput:
      let body = Text()
      var writer = ProtoWriter(into: body)
      writer.int(1, Int64(total))
      finish(body)
    case .halfDuplex: answerGathered()
    case .echoClientStream:
      let body = Text()
      if knobs.counts { body.put(total) } else { body.exchange(with: gathered) }
      finish(body)
    case .fullDuplex, .echoBidi, .sayHelloBidi: endsAfterReplies = true
    case .emptyCall, .unaryCall, .cacheableUnary, .streamingOutput, .echoUnary, .echoServerStream, .sayHello,
      .sayHelloStream, .healthCheck, .healthWatch, .unknownMethod, .unknownService:
      end(.unimplemented, "no such method")
    }
  }

  /// Answers with one reply, and then ends the call. If the client has asked for an error status
  /// (`Knobs.status`), that status is sent in place of the reply.
  private func finish(_ body: ByteBuffer) { finish(Reply(body: body)) }

  func finish(_ answer: Reply) {
    endsAfterReplies = true
    let fails = knobs.status != nil && knobs.status != 0
    reply(fails ? Reply(isOnlyDelay: true) : answer)
  }

  private func answer(_ request: ByteBuffer, _ isCompressed: Bool) {
    switch method {
    case .echoUnary: finish(request)
    case .echoServerStream:
      endsAfterReplies = true
      let times = knobs.count ?? 1
      if times > 0 { reply(Reply(body: request, times: times)) }
    case .emptyCall: finish(codec == .json ? Text("{}") : ByteBuffer())
    case .unaryCall, .cacheableUnary: answerSimple(request.view, isCompressed)
    case .streamingOutput:
      endsAfterReplies = true
      answerStreaming(request.view)
    case .fullDuplex: answerStreaming(request.view)
    case .sayHello: greet(request.view, times: 1)
    case .sayHelloStream: greet(request.view, times: knobs.count ?? 3)
    case .healthCheck, .healthWatch: answerHealth(request.view)
    case .streamingInput, .halfDuplex, .echoClientStream, .echoBidi, .sayHelloBidi, .unknownMethod,
      .unknownService:
      end(.unimplemented, "no such method")
    }
  }

  // MARK: Client streams

  private func takeInput(_ message: ByteView, _ isCompressed: Bool) {
    var reader = ProtoReader(message)
    while true {
      switch reader.next() {
      case .malformed: return end(.internal, "the request is not a StreamingInputCallRequest")
      case .end: return
      case .field(number: 1, value: .bytes(let payload)): total += TestMessages.bodySize(payload)
      case .field(number: 2, value: .bytes(let expected)):
        if TestMessages.bool(expected) != isCompressed {
          return end(.invalidArgument, "the request is not compressed as it says")
        }
      case .field: continue
      }
    }
  }

  /// Appends a message of a client stream to `gathered`; with `framed`, its prefix comes before it. The
  /// messages of the stream together may be as large as one message may be.
  private func gather(_ message: ByteView, framed: Bool) {
    let limit = session?.options.maxMessageBytes ?? 0
    guard gathered.count + message.count <= limit else {
      return end(.resourceExhausted, "the stream is larger than the limit for one message")
    }
    if framed {
      guard let space = gathered.spare(atLeast: 5), let base = space.baseAddress else {
        return end(.resourceExhausted, "no memory")
      }
      MessagePrefix.write(compressed: false, length: UInt32(truncatingIfNeeded: message.count), to: base)
      gathered.commit(5)
    }
    if !gathered.append(message) { end(.resourceExhausted, "no memory") }
  }

  private func answerGathered() {
    endsAfterReplies = true
    var decoder = MessageDecoder(limit: Int.max)
    while status == nil {
      let (used, event) = decoder.push(gathered.view)
      gathered.consume(used)
      guard case .message(let message, _) = event else { return }
      answerStreaming(message.view)
    }
  }

  // MARK: Greeter and Health

  private func greet(_ request: ByteView, times: Int) {
    guard let name = text(1, "name", of: request, "HelloRequest") else { return }
    let body = Text()
    if codec == .json {
      let greeting = Text("Hello, ").put(name.view).put("!")
      body.put("{\"message\":").put(jsonText: greeting.view).put("}")
    } else {
      var writer = ProtoWriter(into: body)
      writer.messageHeader(1, length: name.count + 8)
      body.put("Hello, ").put(name.view).put("!")
    }
    if method == .sayHello { return finish(body) }
    if method == .sayHelloStream { endsAfterReplies = true }
    if times > 0 { reply(Reply(body: body, times: times)) }
  }

  /// Returns a string of the request: the field `number`, or in JSON the member `member`. It is empty if it
  /// is missing. nil: the request is malformed, and the call has ended.
  private func text(
    _ number: UInt32, _ member: StaticString, of request: ByteView, _ type: StaticString
  ) -> ByteBuffer? {
    let found = Text()
    if codec == .json {
      switch JSONText.string(member, of: request) {
      case .text(let text): return text
      case .absent: return found
      case .malformed:
        let words = Text("the request is not a ").put(type).put(" in JSON")
        end(Int(StatusCode.invalidArgument.rawValue), words.view)
        return nil
      }
    }
    var reader = ProtoReader(request)
    while true {
      switch reader.next() {
      case .malformed:
        let words = Text("the request is not a ").put(type)
        end(Int(StatusCode.internal.rawValue), words.view)
        return nil
      case .end: return found
      case .field(let field, .bytes(let value)):
        if field == number {
          found.removeAll(keepingCapacity: true)
          found.put(value)
        }
      case .field: continue
      }
    }
  }

  private func answerHealth(_ request: ByteView) {
    guard let service = text(1, "service", of: request, "HealthCheckRequest") else { return }
    let names: [StaticString] = [
      "", "penstock.Echo", "grpc.testing.TestService", "helloworld.Greeter", "grpc.health.v1.Health",
    ]
    let isKnown = names.contains { bytesEqual(service.view, $0) }
    if method == .healthCheck && !isKnown { return end(.notFound, "unknown service") }
    let body = Text()
    if codec == .json {
      body.put(isKnown ? "{\"status\":\"SERVING\"}" : "{\"status\":\"SERVICE_UNKNOWN\"}")
    } else {
      var writer = ProtoWriter(into: body)
      writer.int(1, isKnown ? 1 : 3)  // SERVING, SERVICE_UNKNOWN
    }
    // Watch gets one reply, and its call stays open. No second reply follows, because the health never
    // changes.
    if method == .healthCheck { finish(body) } else { reply(Reply(body: body)) }
  }
}
