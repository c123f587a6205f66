import BenchSupport
import GRPCCore

/// The serializer of messages that are arrays of bytes: it does not change them.
struct Bytes: MessageSerializer, MessageDeserializer {
  func serialize<Body: GRPCContiguousBytes>(_ message: [UInt8]) -> Body { Body(message) }

  func deserialize<Body: GRPCContiguousBytes>(_ body: Body) -> [UInt8] {
    body.withUnsafeBytes { [UInt8]($0) }
  }
}

/// The measurements, made with one client on one connection.
struct Bench<Transport: ClientTransport>: Sendable {
  let client: GRPCClient<Transport>
  let options: Options
  let request: [UInt8]
  private let callOptions: CallOptions

  init(client: GRPCClient<Transport>, options: Options) {
    self.client = client
    self.options = options
    request = options.message
    var callOptions = CallOptions.defaults
    callOptions.maxRequestMessageBytes = 1 << 30
    callOptions.maxResponseMessageBytes = 1 << 30
    self.callOptions = callOptions
  }

  /// Makes the calls or messages. Gives the duration of each if they go one after the other, otherwise an empty array.
  func run(_ calls: Int) async throws -> [Duration] {
    switch options.what {
    case "unary": return try await BenchSupport.unary(calls, options.inFlight) { try await unary() }
    case "pingpong": return try await pingPong(calls)
    case "up":
      try await stream(
        "ClientStream", ["x-mode": "count"], sends: calls, receives: 1, Array(String(calls).utf8))
    case "down":
      try await stream(
        "ServerStream", ["x-repeat": "\(calls)"], sends: 1, receives: calls, request)
    case "duplex": try await stream("Bidi", [:], sends: calls, receives: calls, request)
    default: fail("--what: grpc-swift-client has no \(options.what)")
    }
    return []
  }

  // MARK: Unary

  private func unary() async throws {
    try await client.unary(
      request: ClientRequest(message: request), descriptor: method("Unary"), serializer: Bytes(),
      deserializer: Bytes(), options: callOptions
    ) { response in
      guard isSame(try response.message, request) else { fail("wrong reply") }
    }
  }

  // MARK: Streams

  private func pingPong(_ calls: Int) async throws -> [Duration] {
    let (turns, turn) = AsyncStream.makeStream(of: Void.self)
    let send = StreamingClientRequest<[UInt8]> { writer in
      for await _ in turns { try await writer.write(request) }
    }
    // A server may keep its headers until its first message: the first turn does not wait for them.
    let opened = ContinuousClock.now
    turn.yield()
    return try await client.bidirectionalStreaming(
      request: send, descriptor: method("Bidi"), serializer: Bytes(), deserializer: Bytes(),
      options: callOptions
    ) { response in
      var taken: [Duration] = []
      taken.reserveCapacity(calls)
      var started = opened
      for try await echo in response.messages {
        guard isSame(echo, request) else { fail("wrong message") }
        taken.append(ContinuousClock.now - started)
        if taken.count == calls {
          turn.finish()
        } else {
          started = ContinuousClock.now
          turn.yield()
        }
      }
      guard taken.count == calls else { fail("wrong count") }
      return taken
    }
  }

  /// Makes a streaming call that sends `sends` messages as fast as flow control allows, and reads at the same time.
  private func stream(
    _ name: String, _ metadata: Metadata, sends: Int, receives: Int, _ wanted: [UInt8]
  ) async throws {
    let send = StreamingClientRequest<[UInt8]>(metadata: metadata) { writer in
      for _ in 0..<sends { try await writer.write(request) }
    }
    try await client.bidirectionalStreaming(
      request: send, descriptor: method(name), serializer: Bytes(), deserializer: Bytes(),
      options: callOptions
    ) { response in
      var received = 0
      for try await message in response.messages {
        guard isSame(message, wanted) else { fail("wrong message") }
        received += 1
      }
      guard received == receives else { fail("wrong count: \(received)") }
    }
  }

  private func method(_ name: String) -> MethodDescriptor {
    MethodDescriptor(fullyQualifiedService: "penstock.Echo", method: name)
  }
}
