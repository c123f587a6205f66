import PenstockWire
import Testing

@Suite struct StatusTests {
  /// The names of the codes 0 to 16, from grpc/doc/statuscodes.md.
  static let names = [
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
  ]

  @Test func codesAndNames() throws {
    for (number, name) in Self.names.enumerated() {
      let code = try #require(StatusCode(rawValue: Int32(number)))
      #expect(code.name.description == name)
      #expect(with(String(number)) { StatusCode.parse($0) } == code)
    }
    let all: [StatusCode] = [
      .ok, .cancelled, .unknown, .invalidArgument, .deadlineExceeded, .notFound, .alreadyExists,
      .permissionDenied,
      .resourceExhausted, .failedPrecondition, .aborted, .outOfRange, .unimplemented, .internal, .unavailable,
      .dataLoss, .unauthenticated,
    ]
    #expect(all.map(\.rawValue) == Array(0...16))
  }

  @Test(arguments: [-1, 17, Int32.min, Int32.max] as [Int32])
  func undefinedCodes(number: Int32) { #expect(StatusCode(rawValue: number) == nil) }

  /// Leading zeros leave the number clear, although gRPC over HTTP2, "Responses", forbids them.
  @Test(
    arguments: [
      ("00", .ok), ("05", .notFound), ("016", .unauthenticated), ("0000000000000000000000002", .unknown),
    ]
      as [(String, StatusCode)])
  func leadingZeros(value: String, expected: StatusCode) {
    #expect(with(value) { StatusCode.parse($0) } == expected)
  }

  /// Texts that are no status: gRPC over HTTP2, "Responses", demands a decimal number.
  @Test(arguments: [
    "", "017", "17", "0x", "18446744073709551616", "4294967296", "20", "99", "100", "-1", "+1", " 1", "1 ",
    "a", "1a", "0x1", "\u{FF11}",
  ])
  func malformedStatusValues(value: String) { #expect(with(value) { StatusCode.parse($0) } == nil) }

  /// The whole table of "HTTP to gRPC Status Code Mapping", and HTTP statuses that are not in it.
  @Test(
    arguments: [
      (400, .internal), (401, .unauthenticated), (403, .permissionDenied), (404, .unimplemented),
      (429, .unavailable), (431, .internal), (502, .unavailable), (503, .unavailable), (504, .unavailable),
      (200, .unknown), (204, .unknown), (100, .unknown), (302, .unknown), (418, .unknown), (500, .unknown),
      (0, .unknown), (-1, .unknown), (Int.max, .unknown),
    ] as [(Int, StatusCode)])
  func httpStatus(http: Int, expected: StatusCode) { #expect(StatusMapping.fromHTTPStatus(http) == expected) }

  /// The HTTP status counts only without grpc-status: "If grpc-status was provided, it must be used".
  @Test func trailersWinOverHTTPStatus() {
    #expect(with("5") { StatusMapping.fromTrailers(grpcStatus: $0, httpStatus: 503) } == .notFound)
    #expect(with("0") { StatusMapping.fromTrailers(grpcStatus: $0, httpStatus: 200) } == .ok)
    #expect(with("xx") { StatusMapping.fromTrailers(grpcStatus: $0, httpStatus: 503) } == .unknown)
    #expect(with("17") { StatusMapping.fromTrailers(grpcStatus: $0, httpStatus: 200) } == .unknown)
    #expect(StatusMapping.fromTrailers(grpcStatus: nil, httpStatus: 503) == .unavailable)
    #expect(StatusMapping.fromTrailers(grpcStatus: nil, httpStatus: 200) == .unknown)
  }

  @Test func randomValuesParseToTheNumberTheySay() {
    var random = Random()
    for _ in 0..<rounds {
      let value = random.bytes(upTo: 3, of: "0123456789 -")
      let expected = Int32(String(decoding: value, as: UTF8.self)).flatMap { StatusCode(rawValue: $0) }
      let isNumber = value.allSatisfy { $0 >= 0x30 && $0 <= 0x39 }
      #expect(
        with(value) { StatusCode.parse($0) } == (isNumber ? expected : nil), "PENSTOCK_SEED=\(Seed.value)")
    }
  }
}
