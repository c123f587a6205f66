/// A gRPC status code. Its number is always from 0 to 16.
public struct StatusCode: RawRepresentable, Equatable, Sendable {
  public let rawValue: Int32

  /// The status code with this number; nil: gRPC does not define the number.
  public init?(rawValue: Int32) {
    guard rawValue >= 0 && rawValue <= 16 else { return nil }
    self.rawValue = rawValue
  }

  private init(known: Int32) { rawValue = known }

  public static var ok: StatusCode { StatusCode(known: 0) }
  public static var cancelled: StatusCode { StatusCode(known: 1) }
  public static var unknown: StatusCode { StatusCode(known: 2) }
  public static var invalidArgument: StatusCode { StatusCode(known: 3) }
  public static var deadlineExceeded: StatusCode { StatusCode(known: 4) }
  public static var notFound: StatusCode { StatusCode(known: 5) }
  public static var alreadyExists: StatusCode { StatusCode(known: 6) }
  public static var permissionDenied: StatusCode { StatusCode(known: 7) }
  public static var resourceExhausted: StatusCode { StatusCode(known: 8) }
  public static var failedPrecondition: StatusCode { StatusCode(known: 9) }
  public static var aborted: StatusCode { StatusCode(known: 10) }
  public static var outOfRange: StatusCode { StatusCode(known: 11) }
  public static var unimplemented: StatusCode { StatusCode(known: 12) }
  public static var `internal`: StatusCode { StatusCode(known: 13) }
  public static var unavailable: StatusCode { StatusCode(known: 14) }
  public static var dataLoss: StatusCode { StatusCode(known: 15) }
  public static var unauthenticated: StatusCode { StatusCode(known: 16) }

  /// The name of the code in the gRPC documents, such as "OK" or "CANCELLED".
  public var name: StaticString {
    switch rawValue {
    case 0: return "OK"
    case 1: return "CANCELLED"
    case 2: return "UNKNOWN"
    case 3: return "INVALID_ARGUMENT"
    case 4: return "DEADLINE_EXCEEDED"
    case 5: return "NOT_FOUND"
    case 6: return "ALREADY_EXISTS"
    case 7: return "PERMISSION_DENIED"
    case 8: return "RESOURCE_EXHAUSTED"
    case 9: return "FAILED_PRECONDITION"
    case 10: return "ABORTED"
    case 11: return "OUT_OF_RANGE"
    case 12: return "UNIMPLEMENTED"
    case 13: return "INTERNAL"
    case 14: return "UNAVAILABLE"
    case 15: return "DATA_LOSS"
    default: return "UNAUTHENTICATED"
    }
  }

  /// The code in a `grpc-status` header, a decimal number. Leading zeros are accepted, although gRPC forbids a
  /// server to send them (gRPC over HTTP2, "Responses"): the number is clear. nil: the text is no number, or the
  /// number is not defined; the caller then uses UNKNOWN.
  public static func parse(_ grpcStatus: ByteView) -> StatusCode? {
    if grpcStatus.isEmpty { return nil }
    var value: Int32 = 0
    for byte in grpcStatus {
      guard let digit = decimalDigit(byte), value <= 16 else { return nil }
      value = value &* 10 &+ Int32(digit)
    }
    return StatusCode(rawValue: value)
  }
}

/// A set of status codes.
public struct StatusCodes: Equatable, Sendable {
  private var bits: UInt32 = 0

  public init() {}

  public var isEmpty: Bool { bits == 0 }
  public mutating func insert(_ code: StatusCode) { bits |= 1 << UInt32(code.rawValue) }
  public func contains(_ code: StatusCode) -> Bool { bits & 1 << UInt32(code.rawValue) != 0 }
}

func decimalDigit(_ byte: UInt8) -> UInt8? {
  byte >= 0x30 && byte <= 0x39 ? byte &- 0x30 : nil
}

/// Finds the status code of a response, from its `grpc-status` or its HTTP status.
public enum StatusMapping {
  /// The code for headers that end the stream (trailers, or trailers-only): "If grpc-status was provided, it
  /// must be used". A malformed or undefined value gives UNKNOWN. Without `grpc-status` the HTTP status
  /// decides.
  public static func fromTrailers(grpcStatus: ByteView?, httpStatus: Int) -> StatusCode {
    guard let grpcStatus else { return fromHTTPStatus(httpStatus) }
    return StatusCode.parse(grpcStatus) ?? .unknown
  }

  /// The code for a response without `grpc-status` ("HTTP to gRPC Status Code Mapping"). HTTP status 200
  /// gives UNKNOWN too, because a successful call always has a `grpc-status`. Connect's table ("HTTP to Error
  /// Code") has no 431.
  public static func fromHTTPStatus(_ status: Int, isConnect: Bool = false) -> StatusCode {
    switch status {
    case 400: return .internal
    case 431: return isConnect ? .unknown : .internal
    case 401: return .unauthenticated
    case 403: return .permissionDenied
    case 404: return .unimplemented
    case 429, 502, 503, 504: return .unavailable
    default: return .unknown
    }
  }
}
