import FoundationEssentials
import Penstock
import Testing

/// Messages that are values of the program.
@Suite(.timeLimit(.minutes(15))) struct CodecTests {
  struct Question: Codable, Sendable, Hashable {
    var name: String
    var numbers: [Int]
  }
  /// The requests may be types that are only written, the responses types that are only read.
  struct Written: Encodable, Sendable {
    var name: String
  }
  struct Read: Decodable, Sendable, Hashable {
    var name: String
  }
  struct Named: Codable, Sendable { var name: String }
  struct Greeting: Codable, Sendable { var message: String }

  @Test func theFourKindsHaveCodableValues() async throws {
    try await withChannel { channel in
      let question = Question(name: "ä\"", numbers: [1, 2])
      let answer = try await channel.unary("/penstock.Echo/Unary", question, as: Question.self)
      #expect(answer == question)
      let read = try await channel.unary("/penstock.Echo/Unary", Written(name: "x"), as: Read.self)
      #expect(read == Read(name: "x"))

      let many = try await channel.serverStream(
        "/penstock.Echo/ServerStream", question, as: Question.self, options: .asking(["x-count": "3"]))
      var count = 0
      for try await answer in many {
        #expect(answer == question)
        count += 1
      }
      #expect(count == 3)

      let questions = (0..<5).map { Question(name: "\($0)", numbers: [$0]) }
      func stream(_ questions: [Question]) -> AsyncStream<Question> {
        AsyncStream { continuation in
          for question in questions { continuation.yield(question) }
          continuation.finish()
        }
      }
      var answers: [Question] = []
      for try await answer in try await channel.bidi(
        "/penstock.Echo/Bidi", stream(questions), as: Question.self)
      {
        answers.append(answer)
      }
      #expect(answers == questions)
      let number = try await channel.clientStream(
        "/penstock.Echo/ClientStream", stream(questions), as: Int.self, options: .asking(["x-mode": "count"]))
      #expect(number == 5)
    }
  }

  @Test func aServerOfConnectReadsAndWritesTheJSON() async throws {
    var options = ChannelOptions.cleartext
    options.rpcProtocol = .connect
    try await withChannel(options) { channel in
      let greeting = try await channel.unary(
        "/helloworld.Greeter/SayHello", Named(name: "Ada"), as: Greeting.self)
      #expect(greeting.message == "Hello, Ada!")
      let call = try channel.call(
        Method<Named, Greeting>.json("/helloworld.Greeter/SayHello"), .unary,
        options: .asking(["x-echo-metadata": "1"]))
      try await call.send(Named(name: "Bob"))
      call.halfClose()
      #expect(try await call.response().message == "Hello, Bob!")
      #expect(await call.status().trailers.first("seen-content-type") == "application/json")
    }
  }

  @Test(arguments: [nil, "json", "proto"])
  func theContentTypeNamesTheEncoding(_ usual: String?) async throws {
    var options = ChannelOptions.cleartext
    options.contentSubtype = usual
    try await withChannel(options) { channel in
      func contentType<Request, Response>(_ method: Method<Request, Response>, _ request: Request)
        async throws
        -> String?
      {
        let call = try channel.call(method, .unary, options: .asking(["x-echo-metadata": "1"]))
        try await call.send(request)
        call.halfClose()
        _ = try await call.response()
        return await call.status().trailers.first("seen-content-type")
      }
      let path = "/penstock.Echo/Unary"
      let json = try await contentType(Method<Int, Int>.json(path), 1)
      #expect(json == "application/grpc+json")
      let bytes = try await contentType(Method(path), [1])
      #expect(bytes == usual.map { "application/grpc+\($0)" } ?? "application/grpc")
      let text = Codec<String>(contentSubtype: "text") {
        [UInt8]($0.utf8)
      } decode: {
        String(decoding: $0, as: UTF8.self)
      }
      let named = try await contentType(Method(path, requests: text, responses: text), "x")
      #expect(named == "application/grpc+text")
    }
  }

  @Test func bytesAreJSONAlready() async throws {
    try await withChannel { channel in
      let answer = try await channel.unary(
        "/penstock.Echo/Unary", bytes(#"{"name": "raw"}"#), as: Read.self)
      #expect(answer == Read(name: "raw"))
      let raw = try await channel.unary("/penstock.Echo/Unary", Written(name: "x"), as: [UInt8].self)
      #expect(text(raw) == #"{"name":"x"}"#)

      // Other arrays are no bytes, also if they are empty.
      let empty = try await channel.unary("/penstock.Echo/Unary", [Int](), as: [UInt8].self)
      #expect(text(empty) == "[]")
      await #expect(throws: DecodingError.self) {
        try await channel.unary("/penstock.Echo/Unary", [UInt8](), as: [Int].self)
      }
    }
  }

  @Test func aValueThatDoesNotFitIsAnError() async throws {
    try await withChannel { channel in
      await #expect(throws: DecodingError.self) {
        try await channel.unary("/penstock.Echo/Unary", Written(name: "x"), as: Int.self)
      }
      await #expect(throws: EncodingError.self) {
        try await channel.unary("/penstock.Echo/Unary", Double.infinity, as: Double.self)
      }
    }
  }

  @Test func anEncoderOfTheProgramsOwnIsUsed() async throws {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys]
    encoder.dateEncodingStrategy = .secondsSince1970
    let codec = JSONCodec<[String: Date]>(encoder: encoder)
    try await withChannel { channel in
      let response = try await channel.unary(
        Method("/penstock.Echo/Unary", requests: codec, responses: .bytes),
        ["b": Date(timeIntervalSince1970: 5), "a": Date(timeIntervalSince1970: 7)])
      #expect(text(response) == #"{"a":7,"b":5}"#)
    }
  }

  @Test func anInterceptorReadsAndChangesValues() async throws {
    try await withChannel { channel in
      try channel.addInterceptor(
        "upper",
        .functions { _ in
          InterceptorFunctions(response: { message, proceed in
            proceed(
              Result {
                var message = message
                let read = try message.value(.json(Question.self))
                try message.set(Question(name: read.name.uppercased(), numbers: []), .json(Question.self))
                return message
              })
          })
        })
      let answer = try await channel.unary(
        "/penstock.Echo/Unary", Question(name: "x", numbers: [1]), as: Question.self)
      #expect(answer == Question(name: "X", numbers: []))
    }
  }
}
