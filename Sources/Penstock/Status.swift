internal import CPenstock

/// How a call ended: a code, a message, details, and the trailers that came with them.
public struct Status: Sendable, Hashable, CustomStringConvertible {
  /// The status codes of gRPC.
  public enum Code: Int32, Sendable, CaseIterable, CustomStringConvertible {
    /// The call has succeeded.
    case ok = 0
    /// The call was cancelled, mostly by the caller.
    case cancelled = 1
    /// An error without a better code.
    case unknown = 2
    /// The request is wrong, whatever the state of the server.
    case invalidArgument = 3
    /// The deadline has passed.
    case deadlineExceeded = 4
    /// Something that was asked for is not there.
    case notFound = 5
    /// Something that was to be made is there.
    case alreadyExists = 6
    /// The caller may not do this.
    case permissionDenied = 7
    /// A quota, a limit or a disk is used up.
    case resourceExhausted = 8
    /// The server is not in a state for this; a retry does not help.
    case failedPrecondition = 9
    /// The operation was given up, for example after a conflict.
    case aborted = 10
    /// The request went beyond an end.
    case outOfRange = 11
    /// The server does not have the method.
    case unimplemented = 12
    /// Something that must not break is broken.
    case `internal` = 13
    /// The server cannot be reached now; a retry may help.
    case unavailable = 14
    /// Data is lost or damaged.
    case dataLoss = 15
    /// The caller has not shown who it is.
    case unauthenticated = 16

    /// The name in gRPC's documents, such as "NOT_FOUND".
    public var description: String { String(cString: penstock_status_code_name(rawValue)) }
  }

  /// A detail of a status: a `google.protobuf.Any`.
  public struct Detail: Sendable, Hashable {
    /// The type of the message, such as "type.googleapis.com/google.rpc.RetryInfo".
    public var typeURL: String
    /// The encoded message.
    public var value: [UInt8]

    /// Makes a detail of a type and an encoded message.
    public init(typeURL: String, value: [UInt8]) {
      self.typeURL = typeURL
      self.value = value
    }

    /// The name of the message's type: the part of the type URL after the last slash.
    public var typeName: Substring {
      guard let slash = typeURL.lastIndex(of: "/") else { return typeURL[...] }
      return typeURL[typeURL.index(after: slash)...]
    }
  }

  /// The code.
  public var code: Code
  /// The message, for people.
  public var message: String
  /// The details; on the wire they are in "grpc-status-details-bin".
  public var details: [Detail]
  /// The trailing metadata.
  public var trailers: Metadata

  /// Makes a status.
  public init(_ code: Code, _ message: String = "", details: [Detail] = [], trailers: Metadata = Metadata()) {
    self.code = code
    self.message = message
    self.details = details
    self.trailers = trailers
  }

  /// Code and message in one line.
  public var description: String { message.isEmpty ? "\(code)" : "\(code): \(message)" }

  /// The encoded messages of all details of one type.
  ///
  /// - Parameter typeName: the full name of the message's type, such as "google.rpc.RetryInfo".
  public func details(ofType typeName: String) -> [[UInt8]] {
    details.filter { $0.typeName == typeName }.map(\.value)
  }

  /// Copies a status of the C API, which one thread uses at a time.
  init(_ status: OpaquePointer?) {
    code = Code(rawValue: penstock_status_code(status)) ?? .unknown
    var length = 0
    let text = penstock_status_message(status, &length)
    message = String(decoding: UnsafeRawBufferPointer(start: text, count: length), as: UTF8.self)
    details = (0..<penstock_status_detail_count(status)).compactMap { index in
      var type: UnsafePointer<CChar>?
      var value: UnsafeRawPointer?
      var length = 0
      let result = penstock_status_detail_at(status, index, &type, &value, &length)
      guard result == PENSTOCK_OK, let type else { return nil }
      return Detail(typeURL: String(cString: type), value: [UInt8](value, count: length))
    }
    trailers = Metadata(penstock_status_trailers(status))
  }

  /// Makes a status of the C API, for hops that end their call.
  func made() throws(PenstockError) -> Handle {
    let handle = try make("a status", penstock_status_release) { status, _ in
      penstock_status_new(code.rawValue, nil, &status)
    }
    try write(to: handle.pointer)
    return handle
  }

  /// Writes this status into one of the C API.
  func write(to status: OpaquePointer) throws(PenstockError) {
    try attempt("setting a status") { _ in penstock_status_set_code(status, code.rawValue) }
    var text = message
    try attempt("setting a status's message") { _ in
      text.withUTF8 { penstock_status_set_message(status, $0.baseAddress, $0.count) }
    }
    try trailers.write(to: penstock_status_trailers(status))
    try attempt("setting a status's details") { _ in penstock_status_clear_details(status) }
    for detail in details {
      try attempt("adding a detail") { _ in
        penstock_status_add_detail(status, detail.typeURL, detail.value, detail.value.count)
      }
    }
  }
}

/// A call has ended with a status other than OK; thrown by the functions that wait for the call.
///
/// An interceptor that throws one ends its call with it.
public struct RPCError: Error, Sendable, Hashable, CustomStringConvertible {
  /// The status with which the call ended.
  public var status: Status

  /// Makes an error of a status.
  public init(_ status: Status) { self.status = status }

  /// Makes an error of a code, a message, details and trailers.
  public init(
    _ code: Status.Code, _ message: String = "", details: [Status.Detail] = [],
    trailers: Metadata = Metadata()
  ) {
    status = Status(code, message, details: details, trailers: trailers)
  }

  /// The code of the status.
  public var code: Status.Code { status.code }
  /// The message of the status.
  public var message: String { status.message }
  /// Code and message in one line.
  public var description: String { status.description }

  /// The encoded messages of all details of one type. With the package trait SwiftProtobuf, `details(of:)` gives them as
  /// messages.
  ///
  /// - Parameter typeName: the full name of the message's type, such as "google.rpc.RetryInfo".
  public func details(ofType typeName: String) -> [[UInt8]] { status.details(ofType: typeName) }
}
