import Clients
import Penstock
import Shapes
import SwiftProtobuf
import Testing

/// Clients that protoc-gen-penstock-swift has made, with a server that gives back the bytes of messages.
@Suite(.timeLimit(.minutes(15))) struct MadeClientTests {
  static func note(_ text: String, _ numbers: Int32...) -> Penstock_Note {
    var note = Penstock_Note()
    note.text = text
    note.numbers = numbers
    return note
  }

  static func all<Message: Sendable>(_ messages: [Message]) -> AsyncStream<Message> {
    AsyncStream { continuation in
      for message in messages { continuation.yield(message) }
      continuation.finish()
    }
  }

  /// Waits for the end of responses, and gives them.
  static func read<Message: Sendable>(_ responses: Responses<Message>) async throws -> [Message] {
    var all: [Message] = []
    for try await response in responses { all.append(response) }
    return all
  }

  static let binary = ChannelOptions.cleartext
  static let json: ChannelOptions = {
    var options = ChannelOptions.cleartext
    options.rpcProtocol = .connect
    options.contentSubtype = "json"
    return options
  }()

  @Test func theFourKindsHaveTypedMessages() async throws {
    try await withChannel { channel in
      let echo = Penstock_EchoClient(channel)
      #expect(try await echo.unary(Self.note("one", 1, 2)) == Self.note("one", 1, 2))

      // The bytes of two messages are those of one that has the later text and all numbers.
      let sum = try await echo.clientStream(Self.all([Self.note("a", 1), Self.note("b", 2, 3)]))
      #expect(sum == Self.note("b", 1, 2, 3))

      var part = Common_V1_Shape.Part()
      part.name = "edge"
      let parts = try await echo.serverStream(part, options: .asking(["x-count": "3"]))
      #expect(try await Self.read(parts) == [part, part, part])

      let notes = [Self.note("x"), Self.note("y", 7), Penstock_Note()]
      #expect(try await Self.read(echo.bidi(Self.all(notes))) == notes)
    }
  }

  @Test func aClientFollowsTheEncodingOfItsChannel() async throws {
    let server = try Server(["--print-requests"])
    try await withChannel(Self.json, to: server) { channel in
      let echo = Penstock_EchoClient(channel)
      let notes = try await Self.read(echo.bidi(Self.all([Self.note("x", 1)])))
      #expect(notes == [Self.note("x", 1)])
    }
    #expect(server.lines(1)[0].contains("connect"))
  }

  @Test func methodsWithoutSideEffectsAreGets() async throws {
    let server = try Server(["--print-requests"])
    var options = ChannelOptions.cleartext
    options.rpcProtocol = .connect
    try await withChannel(options, to: server) { channel in
      let echo = Penstock_EchoClient(channel)
      let note = try await echo.unary(Self.note("by GET"))
      #expect(note == Self.note("by GET"))
      // The call's own option counts more than the method's.
      var asPost = CallOptions()
      asPost.idempotency = .unknown
      let posted = try await echo.unary(Self.note("by POST"), options: asPost)
      #expect(posted == Self.note("by POST"))
    }
    let lines = server.lines(2)
    #expect(lines[0].contains("\"GET\"") && lines[1].contains("\"POST\""))
  }

  @Test func optionsMetadataAndErrorsAreThoseOfTheChannel() async throws {
    try await withChannel { channel in
      let echo = Penstock_EchoClient(channel)
      let error = await #expect(throws: RPCError.self) {
        try await echo.unary(
          Self.note("x"), options: .asking(["x-status": "5", "x-message": "no such note"]))
      }
      #expect(error?.code == .notFound)
      #expect(error?.message == "no such note")

      let late = await #expect(throws: RPCError.self) {
        try await echo.unary(
          Self.note("x"),
          options: CallOptions(timeout: .milliseconds(50), metadata: ["x-delay-ms": "3600000"]))
      }
      #expect(late?.code == .deadlineExceeded)
    }
  }

  @Test func namesAreStaticMembers() async throws {
    #expect(Penstock_EchoClient.serviceName == "penstock.Echo")
    #expect(Penstock_EchoClient.Methods.clientStream.path == "/penstock.Echo/ClientStream")
    try await withChannel { channel in
      try channel.addInterceptor(
        "label",
        .around { call in
          call.start.metadata["x-headers-label"] = ["labelled"]
          try await call.next()
        }, methods: [Penstock_EchoClient.Methods.bidi.path])
      // A call by hand, with the types of the method.
      let call = try channel.call(Penstock_EchoClient.Methods.bidi, .bidi)
      try await call.send(Self.note("by hand"))
      #expect(try await call.headers()?.first("x-headers-label") == "labelled")
      call.halfClose()
      #expect(try await Self.read(call.responses) == [Self.note("by hand")])
    }
  }

  /// The server has none of these methods, but tells the path that it was asked for.
  @Test func namesOfMethodsAreThoseOfTheService() async throws {
    try await withChannel { channel in
      let words = WordsKeywordsClient(channel)
      let seen = CallOptions.asking(["x-echo-metadata": "1"])
      func isMissing(_ method: String, _ call: () async throws -> Void) async {
        await isUnimplemented("/words_of.swift6.Keywords/" + method, call)
      }
      await isMissing("Default") { _ = try await words.default(WordsClass(), options: seen) }
      await isMissing("Return") { _ = try await words.return(WordsClass.TypeMessage(), options: seen) }
      await isMissing("Init") { _ = try await words.init_(WordsClass(), options: seen) }
      await isMissing("Self") { _ = try await words.self_(WordsClass(), options: seen) }
      await isMissing("Channel") {
        _ = try await Self.read(words.channel_(WordsClass(), options: seen))
      }
      await isMissing("HTTPGet") { _ = try await words.httpget(WordsClass(), options: seen) }
      await isMissing("list_all_ids") {
        _ = try await words.listAllIds(Self.all([WordsClass()]), options: seen)
      }
      await isMissing("GetIt") { _ = try await words.GetIt(WordsClass(), options: seen) }
      await isMissing("Get_It") { _ = try await words.Get_It(WordsClass(), options: seen) }
      await isUnimplemented("/penstock.Echo/Nothing") {
        let _: Google_Protobuf_Timestamp = try await Penstock_EchoClient(channel).nothing(
          Google_Protobuf_Empty(), options: seen)
      }
    }
  }
}

/// Expects that `call` fails because the server has no such method, and tells `path`.
func isUnimplemented(_ path: String, _ call: () async throws -> Void) async {
  let error = await #expect(throws: RPCError.self) { try await call() }
  #expect(error?.code == .unimplemented)
  #expect(error?.status.trailers.first("seen-path") == path)
}
