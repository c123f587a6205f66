import Penstock
import SwiftProtobuf
import Testing

/// Calls with messages of SwiftProtobuf, to a server that decodes and encodes them itself.
@Suite(.timeLimit(.minutes(15))) struct ProtobufTests {
  static let binary = ChannelOptions.cleartext
  static let json: ChannelOptions = {
    var options = ChannelOptions.cleartext
    options.rpcProtocol = .connect
    options.contentSubtype = "json"
    return options
  }()

  @Test(arguments: [binary, json])
  func theFourKindsHaveTypedMessages(_ options: ChannelOptions) async throws {
    try await withChannel(options) { channel in
      let greeting = try await channel.unary("/helloworld.Greeter/SayHello", Named("Ada"), as: Greeting.self)
      #expect(greeting.message == "Hello, Ada!")

      let greetings = try await channel.serverStream(
        "/helloworld.Greeter/SayHelloStreamReply", Named("Bob"), as: Greeting.self,
        options: .asking(["x-count": "4"]))
      var count = 0
      for try await greeting in greetings {
        #expect(greeting.message.contains("Bob"))
        count += 1
      }
      #expect(count == 4)

      // The echo knows no messages: one that it gives back is the one that was sent.
      let one = AsyncStream { continuation in
        continuation.yield(Named("Cy"))
        continuation.finish()
      }
      let last = try await channel.clientStream("/penstock.Echo/ClientStream", one, as: Named.self)
      #expect(last == Named("Cy"))

      let names = AsyncStream { continuation in
        for name in ["Dee", "Eve"] { continuation.yield(Named(name)) }
        continuation.finish()
      }
      var answers: [Named] = []
      for try await answer in try await channel.bidi("/penstock.Echo/Bidi", names, as: Named.self) {
        answers.append(answer)
      }
      #expect(answers == [Named("Dee"), Named("Eve")])
    }
  }

  @Test func theContentTypeIsThatOfTheMessages() async throws {
    func contentType(_ channel: Channel, _ encoding: ProtobufEncoding) async throws -> String? {
      let call = try channel.call(
        Method<Named, Greeting>.protobuf("/helloworld.Greeter/SayHello", encoding), .unary,
        options: .asking(["x-echo-metadata": "1"]))
      try await call.send(Named("Ada"))
      call.halfClose()
      #expect(try await call.response().message == "Hello, Ada!")
      return await call.status().trailers.first("seen-content-type")
    }
    try await withChannel { channel in
      let binary = try await contentType(channel, .binary)
      let json = try await contentType(channel, .json)
      #expect([binary, json] == ["application/grpc", "application/grpc+json"])
    }
    try await withChannel(Self.json) { channel in
      let binary = try await contentType(channel, .binary)
      let json = try await contentType(channel, .json)
      #expect([binary, json] == ["application/proto", "application/json"])
    }
  }

  @Test func aCallMayHaveItsOwnEncoding() async throws {
    var options = CallOptions()
    options.contentSubtype = "json"
    try await withChannel { channel in
      let response = try await channel.unary(
        Method("/penstock.Echo/Unary", requests: .protobuf(Named.self, .json), responses: .bytes),
        Named("Ada"))
      #expect(text(response) == #"{"name":"Ada"}"#)
      let greeting = try await channel.unary(
        "/helloworld.Greeter/SayHello", Named("Ada"), as: Greeting.self, options: options)
      #expect(greeting.message == "Hello, Ada!")
    }
  }

  @Test func anAnswerThatIsNoMessageIsAnError() async throws {
    try await withChannel { channel in
      let broken = Method("/penstock.Echo/Unary", requests: .bytes, responses: .protobuf(Named.self))
      await #expect(throws: BinaryDecodingError.self) { try await channel.unary(broken, [0x0A, 0x7F]) }
      let brokenJSON = Method(
        "/penstock.Echo/Unary", requests: .bytes, responses: .protobuf(Named.self, .json))
      await #expect(throws: JSONDecodingError.self) { try await channel.unary(brokenJSON, bytes("{")) }
      // Fields that the type does not have are left out.
      let named = try await channel.unary(brokenJSON, bytes(#"{"name":"Ada","age":36}"#))
      #expect(named == Named("Ada"))
    }
  }
}
