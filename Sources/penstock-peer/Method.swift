import PenstockWire
import PenstockLoop

/// The methods that the server serves.
enum Method: Equatable {
  case emptyCall, unaryCall, cacheableUnary, streamingOutput, streamingInput, fullDuplex, halfDuplex
  case echoUnary, echoServerStream, echoClientStream, echoBidi
  case sayHello, sayHelloStream, sayHelloBidi
  case healthCheck, healthWatch
  case unknownMethod, unknownService

  init(path: ByteView) {
    self = .unknownService
    if let name = Method.name(path, after: "/penstock.Echo/") {
      self = .unknownMethod
      if bytesEqual(name, "Unary") { self = .echoUnary }
      if bytesEqual(name, "ServerStream") { self = .echoServerStream }
      if bytesEqual(name, "ClientStream") { self = .echoClientStream }
      if bytesEqual(name, "Bidi") { self = .echoBidi }
    } else if let name = Method.name(path, after: "/grpc.testing.TestService/") {
      self = .unknownMethod
      if bytesEqual(name, "EmptyCall") { self = .emptyCall }
      if bytesEqual(name, "UnaryCall") { self = .unaryCall }
      if bytesEqual(name, "CacheableUnaryCall") { self = .cacheableUnary }
      if bytesEqual(name, "StreamingOutputCall") { self = .streamingOutput }
      if bytesEqual(name, "StreamingInputCall") { self = .streamingInput }
      if bytesEqual(name, "FullDuplexCall") { self = .fullDuplex }
      if bytesEqual(name, "HalfDuplexCall") { self = .halfDuplex }
    } else if let name = Method.name(path, after: "/helloworld.Greeter/") {
      self = .unknownMethod
      if bytesEqual(name, "SayHello") { self = .sayHello }
      if bytesEqual(name, "SayHelloStreamReply") { self = .sayHelloStream }
      if bytesEqual(name, "SayHelloBidiStream") { self = .sayHelloBidi }
    } else if let name = Method.name(path, after: "/grpc.health.v1.Health/") {
      self = .unknownMethod
      if bytesEqual(name, "Check") { self = .healthCheck }
      if bytesEqual(name, "Watch") { self = .healthWatch }
    }
  }

  private static func name(_ path: ByteView, after prefix: StaticString) -> ByteView? {
    hasPrefix(path, prefix) ? part(path, prefix.utf8CodeUnitCount, path.count) : nil
  }

  /// Whether the client sends exactly one message, so that the server answers after the client's half-close.
  var takesOne: Bool {
    switch self {
    case .emptyCall, .unaryCall, .cacheableUnary, .streamingOutput, .echoUnary, .echoServerStream, .sayHello,
      .sayHelloStream, .healthCheck, .healthWatch:
      return true
    case .streamingInput, .fullDuplex, .halfDuplex, .echoClientStream, .echoBidi, .sayHelloBidi,
      .unknownMethod,
      .unknownService:
      return false
    }
  }

  /// Whether messages flow in both directions at once. The response headers are then sent before the first
  /// message.
  var isDuplex: Bool {
    switch self {
    case .fullDuplex, .echoBidi, .sayHelloBidi, .healthWatch: return true
    case .emptyCall, .unaryCall, .cacheableUnary, .streamingOutput, .streamingInput, .halfDuplex, .echoUnary,
      .echoServerStream, .echoClientStream, .sayHello, .sayHelloStream, .healthCheck, .unknownMethod,
      .unknownService:
      return false
    }
  }

  var isUnknown: Bool { self == .unknownMethod || self == .unknownService }

  /// Whether both sides send exactly one message. Connect sends such messages without envelopes.
  var isUnary: Bool {
    switch self {
    case .emptyCall, .unaryCall, .cacheableUnary, .echoUnary, .sayHello, .healthCheck: return true
    case .streamingOutput, .streamingInput, .fullDuplex, .halfDuplex, .echoServerStream, .echoClientStream,
      .echoBidi, .sayHelloStream, .sayHelloBidi, .healthWatch, .unknownMethod, .unknownService:
      return false
    }
  }

  /// Whether Connect may call the method by GET, because the method has no side effects.
  var takesGet: Bool { isUnary && self != .unaryCall }

  /// Whether the messages may be in any encoding, because the method does not decode them.
  var takesAnyBytes: Bool {
    switch self {
    case .echoUnary, .echoServerStream, .echoClientStream, .echoBidi: return true
    case .emptyCall, .unaryCall, .cacheableUnary, .streamingOutput, .streamingInput, .fullDuplex, .halfDuplex,
      .sayHello, .sayHelloStream, .sayHelloBidi, .healthCheck, .healthWatch, .unknownMethod, .unknownService:
      return false
    }
  }

  /// Whether messages may be JSON.
  var takesJSON: Bool {
    switch self {
    case .sayHello, .sayHelloStream, .sayHelloBidi, .healthCheck, .healthWatch, .emptyCall, .echoUnary,
      .echoServerStream, .echoClientStream, .echoBidi:
      return true
    case .unaryCall, .cacheableUnary, .streamingOutput, .streamingInput, .fullDuplex, .halfDuplex,
      .unknownMethod, .unknownService:
      return false
    }
  }
}

/// The behaviour that the client asks for by metadata (docs/peer.md).
struct Knobs {
  var delay: UInt64 = 0
  var status: Int?
  /// The number of messages after which the server ends the call with `status`.
  var after: Int?
  var count: Int?
  var counts = false
  var echoesMetadata = false
  var compresses = false
  /// Whether headers are sent before a status that comes without a message.
  var sendsHeadersFirst = false
  /// Whether the server sends fields of the request back in its headers or trailers.
  var echoesFields = false
  var hasMessage = false
  /// How the end of an HTTP/1.1 answer is marked; nil: the client asks for no particular way.
  var delimiting: Delimiting?
  /// Whether the connection closes after this HTTP/1.1 answer.
  var closesConnection = false

  /// How the end of a body is marked in HTTP/1.1 (RFC 9112 section 6).
  enum Delimiting { case length, chunked, close }

  mutating func read(_ name: ByteView, _ value: ByteView) {
    guard name.first == 0x78 else { return }  // x
    if bytesEqual(name, "x-delay-ms") {
      delay = UInt64(decimal(value) ?? 0) * 1_000_000
    } else if bytesEqual(name, "x-status") {
      status = decimal(value)
    } else if bytesEqual(name, "x-after") {
      after = decimal(value)
    } else if bytesEqual(name, "x-count") || bytesEqual(name, "x-repeat") {
      count = decimal(value)
    } else if bytesEqual(name, "x-mode") {
      counts = bytesEqual(value, "count")
    } else if bytesEqual(name, "x-echo-metadata") {
      echoesMetadata = bytesEqual(value, "1")
    } else if bytesEqual(name, "x-compress") {
      compresses = bytesEqual(value, "gzip")
    } else if bytesEqual(name, "x-begin") {
      sendsHeadersFirst = bytesEqual(value, "headers")
    } else if bytesEqual(name, "x-http1-length") {
      delimiting = Knobs.delimiting(value)
    } else if bytesEqual(name, "x-http1-close") {
      closesConnection = bytesEqual(value, "1")
    } else if bytesEqual(name, "x-message") || bytesEqual(name, "x-message-bin")
      || bytesEqual(name, "x-details-bin")
    {
      hasMessage = true
    } else if hasPrefix(name, "x-headers") || hasPrefix(name, "x-trailers")
      || hasPrefix(name, "x-grpc-test-echo-")
    {
      echoesFields = true
    }
  }

  private static func delimiting(_ value: ByteView) -> Delimiting? {
    if bytesEqual(value, "length") { return .length }
    if bytesEqual(value, "chunked") { return .chunked }
    return bytesEqual(value, "close") ? .close : nil
  }
}
