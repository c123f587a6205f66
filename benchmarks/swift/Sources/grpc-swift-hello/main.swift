// The program of examples/swift/hello with grpc-swift-2 over its NIO transport, for benchmarks/build_size.py.
import GRPCCore
import GRPCNIOTransportHTTP2Posix

/// Adds a header before anything is sent.
struct Auth: ClientInterceptor {
  func intercept<Input: Sendable, Output: Sendable>(
    request: StreamingClientRequest<Input>, context: ClientContext,
    next: (StreamingClientRequest<Input>, ClientContext) async throws -> StreamingClientResponse<Output>
  ) async throws -> StreamingClientResponse<Output> {
    var request = request
    request.metadata.addString("Bearer s3cret", forKey: "authorization")
    return try await next(request, context)
  }
}

/// Messages that are arrays of bytes.
struct Bytes: MessageSerializer, MessageDeserializer {
  func serialize<Body: GRPCContiguousBytes>(_ message: [UInt8]) -> Body { Body(message) }
  func deserialize<Body: GRPCContiguousBytes>(_ body: Body) -> [UInt8] {
    body.withUnsafeBytes { [UInt8]($0) }
  }
}

let target = CommandLine.arguments.dropFirst().first ?? "127.0.0.1:50051"
let parts = target.split(separator: ":")
let transport = try HTTP2ClientTransport.Posix(
  target: .ipv4(address: String(parts[0]), port: Int(parts[1]) ?? 50051), transportSecurity: .plaintext)
do {
  let reply = try await withGRPCClient(transport: transport, interceptors: [Auth()]) { client in
    try await client.unary(
      request: ClientRequest(message: [UInt8]("\n\u{3}you".utf8)),
      descriptor: MethodDescriptor(fullyQualifiedService: "helloworld.Greeter", method: "SayHello"),
      serializer: Bytes(), deserializer: Bytes(), options: .defaults
    ) { try $0.message }
  }
  print(String(decoding: reply, as: UTF8.self))
} catch let error as RPCError {
  print(error, error.metadata)
}
