internal import CPenstock

// The four kinds of calls. Those with one response wait for it; the others return what the responses are read from.
extension Channel {
  /// Starts a call. The caller sends and receives by the call that it gets, and half-closes it.
  ///
  /// - Throws: ``PenstockError``: a path, an option or metadata that is not allowed, or the channel is closed.
  public func call<Request, Response>(
    _ method: Method<Request, Response>, _ kind: CallKind, options: CallOptions = CallOptions()
  ) throws(PenstockError) -> Call<Request, Response> {
    // A name that the channel uses in any case is not said again.
    let usual = self.options.contentSubtype ?? "proto"
    let subtype = method.contentSubtype == usual ? nil : method.contentSubtype
    let made = try options.made(subtype: subtype, on: self.options, capture())
    return Call(method, kind, try CallLine(self, method.path, kind, made))
  }

  /// Makes a unary call and waits for its response.
  ///
  /// - Throws: ``RPCError``: the call ended with another status than OK; with CANCELLED if the task was cancelled.
  ///   ``PenstockError``: the call could not be made.
  public func unary<Request, Response>(
    _ method: Method<Request, Response>, _ request: Request, options: CallOptions = CallOptions()
  ) async throws -> Response {
    let call = try call(method, .unary, options: options)
    try await call.send(request)
    call.halfClose()
    return try await call.response()
  }

  /// Makes a call with many requests and waits for its response. The requests are read as there is room for them.
  ///
  /// - Throws: as the unary call, and the error with which the requests ended.
  public func clientStream<Request, Response, Requests: AsyncSequence & Sendable>(
    _ method: Method<Request, Response>, _ requests: Requests, options: CallOptions = CallOptions()
  ) async throws -> Response where Requests.Element == Request {
    let call = try call(method, .clientStream, options: options)
    call.line.pump(requests, method.encode)
    return try await call.response()
  }

  /// Makes a call with many responses.
  ///
  /// - Returns: the responses. If they are dropped before their end, the call is cancelled.
  public func serverStream<Request, Response>(
    _ method: Method<Request, Response>, _ request: Request, options: CallOptions = CallOptions()
  ) async throws -> Responses<Response> {
    let call = try call(method, .serverStream, options: options)
    try await call.send(request)
    call.halfClose()
    return call.responses
  }

  /// Makes a call with many requests and many responses. The requests are read as there is room for them, beside the
  /// responses; their error ends the call, and reading the responses throws it.
  ///
  /// - Returns: the responses. If they are dropped before their end, the call is cancelled.
  public func bidi<Request, Response, Requests: AsyncSequence & Sendable>(
    _ method: Method<Request, Response>, _ requests: Requests, options: CallOptions = CallOptions()
  ) async throws -> Responses<Response> where Requests.Element == Request {
    let call = try call(method, .bidi, options: options)
    call.line.pump(requests, method.encode)
    return call.responses
  }
}

// Calls of a path, with messages that are bytes.
extension Channel {
  /// Makes a unary call with bytes; the path is "/package.Service/Method".
  public func unary(
    _ path: String, _ request: [UInt8], options: CallOptions = CallOptions()
  ) async throws -> [UInt8] {
    try await unary(Method(path), request, options: options)
  }

  /// Makes a call with many requests of bytes.
  public func clientStream<Requests: AsyncSequence & Sendable>(
    _ path: String, _ requests: Requests, options: CallOptions = CallOptions()
  ) async throws -> [UInt8] where Requests.Element == [UInt8] {
    try await clientStream(Method(path), requests, options: options)
  }

  /// Makes a call with many responses of bytes.
  public func serverStream(
    _ path: String, _ request: [UInt8], options: CallOptions = CallOptions()
  ) async throws -> Responses<[UInt8]> {
    try await serverStream(Method(path), request, options: options)
  }

  /// Makes a call with many requests and many responses of bytes.
  public func bidi<Requests: AsyncSequence & Sendable>(
    _ path: String, _ requests: Requests, options: CallOptions = CallOptions()
  ) async throws -> Responses<[UInt8]> where Requests.Element == [UInt8] {
    try await bidi(Method(path), requests, options: options)
  }
}
