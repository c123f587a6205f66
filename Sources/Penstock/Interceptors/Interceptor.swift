internal import CPenstock

/// Sees and changes the events of one call, in both directions.
///
/// Each call gets an instance of its own from the factory of ``Interception/perCall(events:_:)``. The functions may wait:
/// while one of them is suspended, its event waits, and so do the later events of its direction; the other direction goes
/// on. Within one direction the functions of one instance run in order, one at a time. An actor's functions run on the
/// actor, and functions of the main actor on its thread.
///
/// A function that throws an ``RPCError`` ends the call with it; another error ends it with INTERNAL and a message that
/// names the interceptor. If the call ends while a function waits, the function's task is cancelled, and what it changes
/// has no effect any more. Functions that are not written let their event pass.
public protocol Interceptor: Sendable {
  /// The start of the call: nothing has been sent yet.
  func onStart(_ start: inout CallStart) async throws
  /// A message to the server.
  func onRequest(_ message: inout InterceptedMessage) async throws
  /// The caller is done sending.
  func onHalfClose() async throws
  /// The response headers; an answer that has only trailers has none.
  func onHeaders(_ headers: inout Metadata) async throws
  /// A message from the server.
  func onResponse(_ message: inout InterceptedMessage) async throws
  /// The status of the call. That of a cancel or a deadline can be neither changed nor delayed.
  func onStatus(_ status: inout Status) async throws
  /// Something other than this interceptor has ended the call, and no status will come.
  func onCancel(_ status: Status) async
}

extension Interceptor {
  /// Lets the start pass.
  public func onStart(_ start: inout CallStart) async throws {}
  /// Lets the message pass.
  public func onRequest(_ message: inout InterceptedMessage) async throws {}
  /// Lets the half-close pass.
  public func onHalfClose() async throws {}
  /// Lets the headers pass.
  public func onHeaders(_ headers: inout Metadata) async throws {}
  /// Lets the message pass.
  public func onResponse(_ message: inout InterceptedMessage) async throws {}
  /// Lets the status pass.
  public func onStatus(_ status: inout Status) async throws {}
  /// Does nothing.
  public func onCancel(_ status: Status) async {}
}

/// The events of a call that an interceptor sees.
public struct InterceptedEvents: OptionSet, Sendable {
  /// The bits of the events.
  public let rawValue: UInt8
  /// Makes a set of its bits.
  public init(rawValue: UInt8) { self.rawValue = rawValue }

  /// The start: ``Interceptor/onStart(_:)``.
  public static let start = InterceptedEvents(rawValue: 1)
  /// Messages to the server: ``Interceptor/onRequest(_:)``.
  public static let request = InterceptedEvents(rawValue: 2)
  /// The end of sending: ``Interceptor/onHalfClose()``.
  public static let halfClose = InterceptedEvents(rawValue: 4)
  /// The response headers: ``Interceptor/onHeaders(_:)``.
  public static let headers = InterceptedEvents(rawValue: 8)
  /// Messages from the server: ``Interceptor/onResponse(_:)``.
  public static let response = InterceptedEvents(rawValue: 16)
  /// The status: ``Interceptor/onStatus(_:)``.
  public static let status = InterceptedEvents(rawValue: 32)
  /// An end by something else: ``Interceptor/onCancel(_:)``.
  public static let cancel = InterceptedEvents(rawValue: 64)
  /// All events.
  public static let all = InterceptedEvents(rawValue: 127)
}

/// A call, as the factory of an interceptor sees it before it starts.
public struct InterceptedCallInfo: Sendable {
  /// The number that names the call within the process.
  public let id: UInt64
  /// The kind of the call.
  public let kind: CallKind
  /// The method, "/package.Service/Method".
  public let method: String
  /// The target of the channel, as the program gave it.
  public let target: String
  /// Whether the call is protected on its way, by TLS or a unix socket.
  public let isSecure: Bool
  /// The metadata of the request so far.
  public let metadata: Metadata

  init(_ hop: OpaquePointer?) {
    id = penstock_hop_call_id(hop)
    kind = CallKind(rawValue: penstock_hop_kind(hop)) ?? .unary
    let request = penstock_hop_request(hop)
    method = penstock_request_method(request).map { String(cString: $0) } ?? ""
    target = penstock_hop_target(hop).map { String(cString: $0) } ?? ""
    isSecure = penstock_hop_is_secure(hop) != 0
    metadata = Metadata(penstock_request_metadata(request))
  }
}

/// The start of a call, whose metadata an interceptor may change.
public struct CallStart: Sendable {
  /// The method, "/package.Service/Method".
  public let method: String
  /// The metadata of the request.
  public var metadata: Metadata
  /// The authority that is sent.
  public let authority: String
  /// The time that is left until the deadline; nil: there is none.
  public let timeout: Duration?
  /// The target of the channel, as the program gave it.
  public let target: String
  /// Whether the call is protected on its way, by TLS or a unix socket.
  public let isSecure: Bool

  private(set) var answer: CallAnswer?

  /// Answers the call here: nothing goes to the interceptors below or to the server.
  public mutating func answer(_ answer: CallAnswer) { self.answer = answer }

  init(_ hop: OpaquePointer) {
    let request = penstock_hop_request(hop)
    method = penstock_request_method(request).map { String(cString: $0) } ?? ""
    authority = penstock_request_authority(request).map { String(cString: $0) } ?? ""
    metadata = Metadata(penstock_request_metadata(request))
    var left: Int64 = -1
    penstock_request_deadline_ms(request, &left)
    timeout = left < 0 ? nil : .milliseconds(left)
    target = penstock_hop_target(hop).map { String(cString: $0) } ?? ""
    isSecure = penstock_hop_is_secure(hop) != 0
  }

  /// Lets the call go on from a hop as it is now, or answers it.
  func settle(at hop: OpaquePointer, before: CallStart) throws(PenstockError) {
    if let answer { return try answer.deliver(at: hop) }
    try write(to: hop, before: before)
    penstock_hop_resolve(hop, PENSTOCK_NEXT)
  }

  /// Writes what differs from `before` into the request of a hop.
  func write(to hop: OpaquePointer, before: CallStart) throws(PenstockError) {
    let request = penstock_hop_request(hop)
    if metadata != before.metadata { try metadata.write(to: penstock_request_metadata(request)) }
  }
}

/// The answer of an interceptor that takes a call.
public struct CallAnswer: Sendable {
  /// The response headers.
  public var headers: Metadata
  /// The responses.
  public var messages: [[UInt8]]
  /// The status.
  public var status: Status

  /// Makes an answer.
  public init(headers: Metadata = Metadata(), messages: [[UInt8]] = [], status: Status = Status(.ok)) {
    self.headers = headers
    self.messages = messages
    self.status = status
  }

  /// Gives the answer at a hop, and lets it take the call.
  func deliver(at hop: OpaquePointer) throws(PenstockError) {
    let fields = try make("headers", penstock_metadata_release) { fields, _ in penstock_metadata_new(&fields)
    }
    try headers.append(to: fields.pointer)
    try attempt("the headers of an answer") { _ in penstock_hop_deliver_headers(hop, fields.pointer) }
    for message in messages {
      try attempt("a message of an answer") { _ in penstock_hop_deliver(hop, message, message.count) }
    }
    let end = try status.made()
    try attempt("the status of an answer") { _ in penstock_hop_deliver_status(hop, end.pointer) }
    penstock_hop_resolve(hop, PENSTOCK_TAKE)
  }
}

/// A message on its way, which an interceptor may change or drop.
public struct InterceptedMessage: Sendable {
  /// The bytes of the message.
  public var bytes: [UInt8] { didSet { isChanged = true } }
  private(set) var isChanged = false
  private(set) var isDropped = false

  /// Takes the message out of the call. The caller still gets as many messages as it asks for.
  public mutating func drop() { isDropped = true }

  /// The message as a value.
  public func value<Codec: MessageCodec>(_ codec: Codec) throws -> Codec.Message { try codec.decode(bytes) }
  /// Replaces the message by a value.
  public mutating func set<Codec: MessageCodec>(_ value: Codec.Message, _ codec: Codec) throws {
    bytes = try codec.encode(value)
  }

  init(_ hop: OpaquePointer) {
    var length = 0
    let data = penstock_message_bytes(penstock_hop_message(hop), &length)
    bytes = [UInt8](data, count: length)
  }

  /// Lets the message go on from a hop as it is now.
  func settle(at hop: OpaquePointer) throws(PenstockError) {
    if isChanged && !isDropped {
      try attempt("a message") { _ in penstock_hop_set_bytes(hop, bytes, bytes.count) }
    }
    penstock_hop_resolve(hop, isDropped ? PENSTOCK_DROP : PENSTOCK_NEXT)
  }
}
