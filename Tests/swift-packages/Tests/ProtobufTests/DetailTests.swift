import Penstock
import SwiftProtobuf
import Testing

/// Errors whose details are messages of the program's own types.
@Suite(.timeLimit(.minutes(15))) struct DetailTests {
  static let connect: ChannelOptions = {
    var options = ChannelOptions.cleartext
    options.rpcProtocol = .connect
    return options
  }()

  /// `google.rpc.Status` with these details, as a server sends it.
  static func encoded(_ code: Status.Code, _ message: String, _ details: [any SwiftProtobuf.Message]) throws
    -> [UInt8]
  {
    var bytes: [UInt8] = [0x08, UInt8(code.rawValue), 0x12, UInt8(message.utf8.count)] + message.utf8
    for detail in details {
      let any: [UInt8] = try Google_Protobuf_Any(message: detail).serializedBytes()
      bytes += [0x1A, UInt8(any.count)] + any
    }
    return bytes
  }

  @Test(arguments: [ChannelOptions.cleartext, connect])
  func anErrorGivesItsDetailsAsMessages(_ options: ChannelOptions) async throws {
    let wait = Google_Protobuf_Duration(seconds: 5, nanos: 7)
    var asking = CallOptions.asking(["x-status": "14", "x-message": "busy"])
    asking.metadata[binary: "x-details-bin"] = [
      try Self.encoded(.unavailable, "busy", [Named("first"), wait, Named("second")])
    ]
    try await withChannel(options) { channel in
      let error = try #require(
        await #expect(throws: RPCError.self) {
          try await channel.unary("/penstock.Echo/Unary", Named("x"), as: Named.self, options: asking)
        })
      #expect(error.code == .unavailable)
      #expect(try error.details(of: Named.self) == [Named("first"), Named("second")])
      #expect(try error.details(of: Google_Protobuf_Duration.self) == [wait])
      #expect(try error.details(of: Greeting.self) == [])
      #expect(error.details(ofType: "google.protobuf.Duration").count == 1)
    }
  }

  @Test func aDetailThatIsNoSuchMessageIsAnError() throws {
    let error = RPCError(
      .aborted, details: [Status.Detail(typeURL: "x/helloworld.HelloRequest", value: [0x0A, 0x7F])])
    #expect(throws: BinaryDecodingError.self) { try error.details(of: Named.self) }
    #expect(error.details(ofType: "helloworld.HelloRequest") == [[0x0A, 0x7F]])
  }

  @Test func anInterceptorEndsACallWithDetails() async throws {
    try await withChannel { channel in
      try channel.addInterceptor(
        "closed",
        .around { _ in
          throw RPCError(.failedPrecondition, "closed", details: [try Status.Detail(Named("until nine"))])
        })
      let error = try #require(
        await #expect(throws: RPCError.self) {
          try await channel.unary("/penstock.Echo/Unary", Named("x"), as: Named.self)
        })
      #expect(error.message == "closed")
      #expect(error.status.details.first?.typeURL == "type.googleapis.com/helloworld.HelloRequest")
      #expect(try error.details(of: Named.self) == [Named("until nine")])
    }
  }

  @Test func theCodeOfThePageRuns() async throws {
    let server = try Server()
    let channel = try Channel(server.target, options: .cleartext)
    let greeting = try await channel.unary("/helloworld.Greeter/SayHello", Named("Ada"), as: Greeting.self)
    #expect(greeting.message == "Hello, Ada!")

    var refused = CallOptions.asking(["x-status": "9"])
    refused.metadata[binary: "x-details-bin"] = [try Self.encoded(.failedPrecondition, "", [Named("Bob")])]
    do {
      _ = try await channel.unary("/penstock.Echo/Unary", Named("Ada"), as: Named.self, options: refused)
    } catch let error as RPCError {
      for detail in try error.details(of: Named.self) { print(error.code, detail.name) }
    }
  }
}
