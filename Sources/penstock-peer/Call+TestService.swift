import PenstockWire

/// Reads those parts of the messages of grpc.testing that the interop test cases use.
enum TestMessages {
  /// Decodes a BoolValue.
  static func bool(_ encoded: ByteView) -> Bool {
    var value = false
    var reader = ProtoReader(encoded)
    while case .field(let number, let field) = reader.next() {
      if number == 1, case .varint(let raw) = field { value = raw != 0 }
    }
    return value
  }

  /// The number of bytes in a Payload's body.
  static func bodySize(_ encoded: ByteView) -> Int {
    var size = 0
    var reader = ProtoReader(encoded)
    while case .field(let number, let field) = reader.next() {
      if number == 2, case .bytes(let body) = field { size = body.count }
    }
    return size
  }

  struct EchoStatus {
    var code: Int32 = 0
    var message = ByteView(start: nil, count: 0)

    init(_ encoded: ByteView) {
      var reader = ProtoReader(encoded)
      while case .field(let number, let field) = reader.next() {
        if number == 1, case .varint(let raw) = field { code = Int32(truncatingIfNeeded: raw) }
        if number == 2, case .bytes(let text) = field { message = text }
      }
    }
  }

  struct ResponseParameters {
    var size: Int32 = 0
    var intervalMicroseconds: Int32 = 0
    var compressed = false

    init(_ encoded: ByteView) {
      var reader = ProtoReader(encoded)
      while case .field(let number, let field) = reader.next() {
        switch (number, field) {
        case (1, .varint(let raw)): size = Int32(truncatingIfNeeded: raw)
        case (2, .varint(let raw)): intervalMicroseconds = Int32(truncatingIfNeeded: raw)
        case (3, .bytes(let flag)): compressed = TestMessages.bool(flag)
        case (_, _): continue
        }
      }
    }
  }
}

extension Call {
  /// Whether a request of this method may ask for compressed responses (field `response_compressed`), and the
  /// client accepts gzip.
  var mayCompress: Bool {
    switch method {
    case .unaryCall, .cacheableUnary, .streamingOutput, .fullDuplex, .halfDuplex: return clientTakesGzip
    case .emptyCall, .streamingInput, .echoUnary, .echoServerStream, .echoClientStream, .echoBidi, .sayHello,
      .sayHelloStream, .sayHelloBidi, .healthCheck, .healthWatch, .unknownMethod, .unknownService:
      return false
    }
  }

  /// Answers a SimpleRequest with a SimpleResponse.
  func answerSimple(_ request: ByteView, _ isCompressed: Bool) {
    var answer = Reply()
    var reader = ProtoReader(request)
    reading: while true {
      switch reader.next() {
      case .malformed: return end(.internal, "the request is not a SimpleRequest")
      case .end: break reading
      case .field(number: 2, value: .varint(let size)):
        guard accept(Int32(truncatingIfNeeded: size), &answer) else { return }
      case .field(number: 6, value: .bytes(let flag)): answer.compressed = TestMessages.bool(flag)
      case .field(number: 7, value: .bytes(let wanted)):
        let wanted = TestMessages.EchoStatus(wanted)
        if wanted.code != 0 { return end(Int(wanted.code), wanted.message) }
      case .field(number: 8, value: .bytes(let expected)):
        if TestMessages.bool(expected) != isCompressed {
          return end(.invalidArgument, "the request is not compressed as it says")
        }
      case .field: continue
      }
    }
    finish(answer)
  }

  /// Answers a StreamingOutputCallRequest: a reply for each of its response parameters, or a status.
  func answerStreaming(_ request: ByteView) {
    var reader = ProtoReader(request)
    while true {
      switch reader.next() {
      case .malformed: return end(.internal, "the request is not a StreamingOutputCallRequest")
      case .end: return
      case .field(number: 2, value: .bytes(let encoded)):
        let parameters = TestMessages.ResponseParameters(encoded)
        var answer = Reply()
        guard accept(parameters.size, &answer) else { return }
        answer.delay = UInt64(max(parameters.intervalMicroseconds, 0)) * 1000
        answer.compressed = parameters.compressed
        reply(answer)
      case .field(number: 7, value: .bytes(let wanted)):
        let wanted = TestMessages.EchoStatus(wanted)
        if wanted.code != 0 { return end(Int(wanted.code), wanted.message) }
      case .field: continue
      }
    }
  }

  private func accept(_ size: Int32, _ answer: inout Reply) -> Bool {
    guard size >= 0, Int(size) <= session?.options.maxMessageBytes ?? 0 else {
      end(.invalidArgument, "the response size is negative or over the limit")
      return false
    }
    answer.size = Int(size)
    return true
  }

  /// Writes a SimpleResponse or StreamingOutputCallResponse, whose payload has `size` zero bytes.
  func writeTestPayload(_ size: Int, into out: ByteBuffer) -> Bool {
    guard let inner = ProtoWriter.bytesFieldSize(2, size) else { return false }
    var writer = ProtoWriter(into: out)
    writer.messageHeader(1, length: size == 0 ? 0 : inner)
    if size == 0 { return writer.isComplete }
    writer.messageHeader(2, length: size)
    guard writer.isComplete, let space = out.spare(atLeast: size), let base = space.baseAddress else {
      return false
    }
    base.initializeMemory(as: UInt8.self, repeating: 0, count: size)
    out.commit(size)
    return true
  }
}
