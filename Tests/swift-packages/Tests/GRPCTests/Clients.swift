import GRPCCore

#if NIO
  import GRPCNIOTransportHTTP2Posix

  let isNIO = true

  /// A transport of grpc-swift itself.
  func makeTransport(
    _ target: String, _ config: ServiceConfig = ServiceConfig(), compresses: Bool = true
  ) throws -> HTTP2ClientTransport.Posix {
    let parts = target.split(separator: ":").map(String.init)
    let port = Int(parts[1])
    return try .http2NIOPosix(
      target: parts[0] == "localhost"
        ? .dns(host: parts[0], port: port) : .ipv4(address: parts[0], port: port ?? 0),
      transportSecurity: .plaintext,
      config: .defaults { $0.compression.enabledAlgorithms = compresses ? .all : .none },
      serviceConfig: config)
  }
#else
  import PenstockGRPC

  let isNIO = false

  func makeTransport(
    _ target: String, _ config: ServiceConfig = ServiceConfig(), compresses _: Bool = true
  ) throws -> PenstockClientTransport {
    try .penstock(target, options: .cleartext, serviceConfig: config)
  }
#endif

/// Messages that are bytes.
struct Raw: MessageSerializer, MessageDeserializer {
  func serialize<Bytes: GRPCContiguousBytes>(_ message: [UInt8]) -> Bytes { Bytes(message) }
  func deserialize<Bytes: GRPCContiguousBytes>(_ bytes: Bytes) -> [UInt8] {
    bytes.withUnsafeBytes { [UInt8]($0) }
  }
}

typealias Response = StreamingClientResponse<[UInt8]>
typealias Writer = RPCWriter<[UInt8]>

/// A client of grpc-swift for penstock.Echo.
protocol EchoClient: Sendable {
  func runConnections() async throws
  func beginGracefulShutdown()
  func single(
    _ method: MethodDescriptor, _ message: [UInt8], _ metadata: Metadata, _ options: CallOptions
  ) async throws -> ClientResponse<[UInt8]>
  func call<Value: Sendable>(
    _ method: MethodDescriptor, _ metadata: Metadata, _ options: CallOptions,
    _ requests: @escaping @Sendable (Writer) async throws -> Void,
    _ read: @escaping @Sendable (Response) async throws -> Value
  ) async throws -> Value
}

extension GRPCClient: EchoClient {
  func single(
    _ method: MethodDescriptor, _ message: [UInt8], _ metadata: Metadata, _ options: CallOptions
  ) async throws -> ClientResponse<[UInt8]> {
    try await unary(
      request: ClientRequest(message: message, metadata: metadata), descriptor: method, serializer: Raw(),
      deserializer: Raw(), options: options
    ) { $0 }
  }

  func call<Value: Sendable>(
    _ method: MethodDescriptor, _ metadata: Metadata, _ options: CallOptions,
    _ requests: @escaping @Sendable (Writer) async throws -> Void,
    _ read: @escaping @Sendable (Response) async throws -> Value
  ) async throws -> Value {
    try await bidirectionalStreaming(
      request: StreamingClientRequest(metadata: metadata, producer: requests), descriptor: method,
      serializer: Raw(), deserializer: Raw(), options: options, onResponse: read)
  }
}

extension MethodDescriptor {
  static func echo(_ method: String, _ type: RPCType?) -> MethodDescriptor {
    MethodDescriptor(fullyQualifiedService: "penstock.Echo", method: method, type: type)
  }
  static let unary = echo("Unary", .unary)
  static let clientStream = echo("ClientStream", .clientStreaming)
  static let serverStream = echo("ServerStream", .serverStreaming)
  static let bidi = echo("Bidi", .bidirectionalStreaming)
}

extension EchoClient {
  /// Makes a unary call.
  func unary(
    _ message: [UInt8], _ metadata: Metadata = [:], _ options: CallOptions = .defaults,
    _ method: MethodDescriptor = .unary
  ) async throws -> ClientResponse<[UInt8]> {
    try await single(method, message, metadata, options)
  }

  /// Makes a call that sends `requests`, and gives all its responses.
  func all(
    _ method: MethodDescriptor, _ requests: [[UInt8]], _ metadata: Metadata = [:],
    _ options: CallOptions = .defaults
  ) async throws -> [[UInt8]] {
    try await call(
      method, metadata, options, { try await $0.write(contentsOf: requests) },
      { response in
        var all: [[UInt8]] = []
        for try await message in response.messages { all.append(message) }
        return all
      })
  }
}

/// Runs `body` with a client that is connected to a server, which ends with it.
func withClient(
  to given: Server? = nil, config: ServiceConfig = ServiceConfig(),
  interceptors: [any ClientInterceptor] = [], _ body: (any EchoClient) async throws -> Void
) async throws {
  let server = try given ?? Server()
  try await withClient(target: server.target, config: config, interceptors: interceptors, body)
}

func withClient(
  target: String, config: ServiceConfig = ServiceConfig(),
  interceptors: [any ClientInterceptor] = [], _ body: (any EchoClient) async throws -> Void
) async throws {
  try await withGRPCClient(transport: makeTransport(target, config), interceptors: interceptors) {
    try await body($0)
  }
}

/// The error of a response, wherever in it the error comes.
func error(_ response: ClientResponse<[UInt8]>) -> RPCError? {
  do {
    _ = try response.message
    return nil
  } catch { return error as? RPCError }
}

func patterned(_ count: Int) -> [UInt8] { (0..<count).map { UInt8(truncatingIfNeeded: $0 * 31) } }
