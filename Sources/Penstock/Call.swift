internal import CPenstock

/// A call that runs: what it sends and receives, and how it ends.
///
/// All functions may be used by any task, also by several at once: one that sends beside one that receives. If a task is
/// cancelled while it waits in one of them, the call is cancelled, and the function throws an ``RPCError`` with the code
/// ``Status/Code/cancelled``. A call that nobody holds any more is cancelled, too.
public final class Call<Request: Sendable, Response: Sendable>: Sendable {
  /// The method.
  public let method: Method<Request, Response>
  /// The kind of the call.
  public let kind: CallKind
  let line: CallLine

  init(_ method: Method<Request, Response>, _ kind: CallKind, _ line: CallLine) {
    self.method = method
    self.kind = kind
    self.line = line
  }

  deinit { line.abandon() }

  /// A number that names the call within the process.
  public var id: UInt64 { penstock_call_id(line.handle.pointer) }

  /// Sends a message as soon as there is room for it in the send buffer.
  ///
  /// - Throws: ``RPCError``: the call has ended with this status, or the task was cancelled. ``PenstockError``: after
  ///   half-close, a second message in a call that has one request, a message over the limit, or the call has ended with
  ///   OK. The message was not sent then.
  public func send(_ message: Request) async throws {
    try await line.send(try line.encoding { try method.encode(message) })
  }

  /// Says that no more messages will be sent. Calls with one request need it, too. A second time does nothing.
  public func halfClose() {
    penstock_call_half_close(line.handle.pointer)
  }

  /// The response headers, as soon as they have come; nil: the answer has none, as that of an interceptor, or an end alone.
  ///
  /// In a unary call they come with the response. In a call with many responses the first one is asked for meanwhile,
  /// since an answer without headers begins with it.
  public func headers() async throws -> Metadata? {
    if kind == .unary { return await line.reply().headers }
    return await line.headers(of: kind)
  }

  /// The responses, which are asked for as they are read: the first alone, later ones a little ahead.
  public var responses: Responses<Response> { Responses(line, kind, method.decode, self) }

  /// The only response, with the end of the call. In a call with many responses: the next one.
  ///
  /// - Throws: ``RPCError``: the call ended with another status than OK, or with OK before there was a response.
  public func response() async throws -> Response {
    var responses = responses.makeAsyncIterator()
    guard let response = try await responses.next() else {
      throw RPCError(.unimplemented, "the call ended without a response")
    }
    return response
  }

  /// The status, as soon as the call has ended. It comes after the responses: a call with many ends only when they have
  /// been asked for, or by its deadline or a cancel.
  public func status() async -> Status {
    await line.reply().status
  }

  /// Says that another task sends the requests than the one that reads the responses.
  package func promiseHalfClose() { penstock_call_promise_half_close(line.handle.pointer) }

  /// The first part of an answer.
  package enum Beginning: Sendable {
    case headers(Metadata)
    /// An interceptor has answered, without headers.
    case message
    case end(Status)
  }

  /// The first part of the answer, as soon as it has come. The first message may be asked for.
  package func beginning() async -> Beginning {
    switch await line.beginning(of: kind) {
    case .headers(let headers): .headers(headers)
    case .message: .message
    case .end(let reply): .end(reply.status)
    }
  }

  /// The wait in milliseconds before another attempt that the server has named in "grpc-retry-pushback-ms" with an error:
  /// -1, if it wants none; nil: it has said nothing.
  package func retryPushback() async -> Int? { await line.reply().retryPushback }

  /// Whether the status has come.
  package var hasEnded: Bool { line.events.ended != nil }

  /// Ends the call with CANCELLED. A call that has ended keeps its status.
  public func cancel(_ reason: String = "cancelled by the program") {
    line.cancel(reason)
  }

  /// The figures of the call as JSON, once it has ended: times, bytes, the connection; include/penstock/call.h lists them.
  public func statistics() async -> String {
    await line.reply().statistics
  }
}

/// The responses of a call. They are asked for as they are read: the first alone, and later ones up to 16 ahead, while 1 MiB
/// has room for so many of the longest: the server sends no faster than they are read, but for these and the window of the
/// stream.
public struct Responses<Response: Sendable>: AsyncSequence, Sendable {
  let line: CallLine
  let kind: CallKind
  let decode: @Sendable ([UInt8]) throws -> Response
  /// Cancels the call when the last reader has gone.
  let owner: any Sendable

  init(
    _ line: CallLine, _ kind: CallKind, _ decode: @escaping @Sendable ([UInt8]) throws -> Response,
    _ owner: any Sendable
  ) {
    self.line = line
    self.kind = kind
    self.decode = decode
    self.owner = owner
  }

  /// The response headers; nil: the answer has none. The first response is asked for meanwhile.
  public func headers() async -> Metadata? { await line.headers(of: kind) }
  /// The status, as soon as the call has ended.
  public func status() async -> Status { await line.reply().status }

  /// Gives an iterator. Iterators of one call share its responses: each response comes once.
  public func makeAsyncIterator() -> Iterator { Iterator(self) }

  /// Reads responses.
  public struct Iterator: AsyncIteratorProtocol {
    private let responses: Responses
    private var isOver = false

    init(_ responses: Responses) { self.responses = responses }

    /// The next response; nil: the call has ended with OK.
    ///
    /// - Throws: ``RPCError``: the call ended with another status.
    public mutating func next() async throws -> Response? {
      if isOver { return nil }
      guard let bytes = try await responses.bytes() else {
        isOver = true
        return nil
      }
      if responses.kind.hasOneResponse { isOver = true }
      return try responses.line.encoding { try responses.decode(bytes) }
    }
  }

  private func bytes() async throws -> [UInt8]? {
    if kind.hasOneResponse { return try await line.onlyResponse() }
    return try await line.receive()
  }
}
