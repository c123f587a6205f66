import Penstock
import Testing

/// The code of docs/swift.md. Each block of that page stands here, or, if it needs other packages, in a package with the
/// package traits; so it is compiled and run.
@Suite(.timeLimit(.minutes(15))) struct DocumentedTests {
  @Test func theCodeOfThePageIsHere() throws {
    let folders = #filePath.split(separator: "/", omittingEmptySubsequences: false).dropLast(3)
    let root = folders.joined(separator: "/")
    let page = try readFile("\(root)/docs/swift.md")
    func lines(_ text: String) -> [Substring] {
      text.split(separator: "\n", omittingEmptySubsequences: false).map { line in
        line.drop { $0 == " " }
      }
    }
    let files = [
      #filePath, "\(root)/Tests/swift-packages/Tests/ProtobufTests/DetailTests.swift",
      "\(root)/Tests/swift-packages/Tests/ObservabilityTests/TogetherTests.swift",
      "\(root)/examples/grpc-swift/greeter/main.swift",
      "\(root)/examples/swift-protobuf/greeter/main.swift",
    ]
    let here = "\n" + lines(try files.map(readFile).joined()).joined(separator: "\n")
    var block: [Substring]?
    var count = 0
    for line in lines(page) {
      if line == "```swift" {
        block = []
      } else if line == "```", let code = block {
        block = nil
        if code.first?.hasPrefix("// swift-tools-version") == true { continue }
        count += 1
        #expect(here.contains("\n" + code.joined(separator: "\n") + "\n"), "\(code.first ?? "")")
      } else {
        block?.append(line)
      }
    }
    #expect(count >= 8)
  }

  @Test func theCodeOfThePageRuns() async throws {
    let server = try Server()
    let target = server.target
    let channel = try Channel(target, options: .cleartext)
    let response = try await channel.unary("/penstock.Echo/Unary", [UInt8]("hello".utf8))
    print(String(decoding: response, as: UTF8.self))

    struct Question: Codable { var name: String }
    let reply = try await channel.unary("/penstock.Echo/Unary", Question(name: "Ada"), as: Question.self)
    #expect(reply.name == "Ada")

    let text = Codec<String>(encode: { [UInt8]($0.utf8) }, decode: { String(decoding: $0, as: UTF8.self) })
    let echo = Method("/penstock.Echo/Unary", requests: text, responses: text)
    let answer = try await channel.unary(echo, "hello")
    #expect(answer == "hello")

    let (requests, feed) = AsyncStream.makeStream(of: String.self)
    let chat = Method("/penstock.Echo/Bidi", requests: text, responses: text)
    let responses = try await channel.bidi(chat, requests)
    feed.yield("one")
    feed.yield("two")
    feed.finish()
    for try await response in responses { print(response) }

    var options = CallOptions(
      timeout: .seconds(5), metadata: ["x-status": "5", "x-message": "no such thing"])
    options.metadata[binary: "x-token-bin"] = [[0, 1, 2]]
    do {
      _ = try await channel.unary(echo, "hello", options: options)
    } catch let error as RPCError {
      print(error.code, error.message, error.details(ofType: "google.rpc.RetryInfo").count)
    }

    try await CallContext(timeout: .seconds(2)).run {
      var options = CallOptions()
      options.inherited = .all
      _ = try await channel.unary(echo, "hello", options: options)
    }

    let figures = try await channel.statistics()
    print(figures.state, figures.attempts.started, figures.endpoints.flatMap(\.connections).count)

    let registration = try channel.addInterceptor("tokens", .shared(events: .start, Tokens()), priority: 100)
    try registration.setPriority(50)

    let retry = Interception.around { call in
      for attempt in 1... {
        do { return try await call.next() } catch let error as RPCError
          where error.code == .unavailable && attempt < 3
        {
          try await Task.sleep(for: .milliseconds(10 * attempt))
        }
      }
    }
    try channel.addInterceptor("retry", retry, methods: ["/penstock.Echo/*"])

    let measured = Interception.functions { _ in
      InterceptorFunctions(response: { message, proceed in
        print(message.bytes.count)
        proceed(message)
      })
    }
    try channel.addInterceptor("measured", measured)

    let login = try BearerToken { refused in
      BearerToken.Token(try await fetchToken(), lifetime: .seconds(3600))
    }
    let metrics = try CallMetrics()
    try channel.addInterceptor("login", login.interception, priority: 600, methods: ["/private/*"])
    try channel.addInterceptor("metrics", metrics.interception, priority: 1_000)
    try channel.addInterceptor("again", .retry(attempts: 3, codes: [.unavailable]))
    let again = try await channel.unary(echo, "again")
    #expect(again == "again")
    #expect(try metrics.snapshot().methods.map(\.started) == [1])
  }
}

private func fetchToken() async throws -> String { "secret" }

actor Tokens: Interceptor {
  var token: String?
  func onStart(_ start: inout CallStart) async throws {
    if token == nil { token = try await fetchToken() }
    start.metadata["authorization"] = ["Bearer \(token ?? "")"]
  }
}
