import Penstock
import Testing

/// The events, in order.
actor Log {
  private(set) var lines: [String] = []
  func add(_ line: String) { lines.append(line) }
}

/// Notes each event, with its name.
struct Noting: Interceptor {
  let name: String
  let log: Log

  func onStart(_ start: inout CallStart) async throws { await log.add("\(name) start") }
  func onRequest(_ message: inout InterceptedMessage) async throws { await log.add("\(name) request") }
  func onHalfClose() async throws { await log.add("\(name) half-close") }
  func onHeaders(_ headers: inout Metadata) async throws { await log.add("\(name) headers") }
  func onResponse(_ message: inout InterceptedMessage) async throws { await log.add("\(name) response") }
  func onStatus(_ status: inout Status) async throws { await log.add("\(name) status \(status.code)") }
  func onCancel(_ status: Status) async { await log.add("\(name) cancel \(status.code)") }
}

@Suite(.timeLimit(.minutes(15))) struct InterceptorTests {
  @Test func aBCDAreCalledInOrderAndBack() async throws {
    try await withChannel { channel in
      let log = Log()
      for (name, priority) in [("C", 2), ("A", 4), ("D", 1), ("B", 3)] as [(String, Int32)] {
        try channel.addInterceptor(name, .shared(Noting(name: name, log: log)), priority: priority)
      }
      let response = try await channel.unary("/penstock.Echo/Unary", bytes("x"))
      #expect(response == bytes("x"))
      let lines = await log.lines
      for event in ["start", "request", "half-close"] {
        #expect(lines.filter { $0.hasSuffix(event) } == ["A", "B", "C", "D"].map { "\($0) \(event)" })
      }
      for event in ["headers", "response", "status OK"] {
        #expect(lines.filter { $0.hasSuffix(event) } == ["D", "C", "B", "A"].map { "\($0) \(event)" })
      }
      #expect(lines.count == 24)
    }
  }

  /// Sends its token to one host only.
  struct Authorization: Interceptor {
    let host: String
    func onStart(_ start: inout CallStart) async throws {
      if start.target == host { start.metadata["authorization"] = ["Bearer secret"] }
    }
  }
  /// Reads what is sent, below all others.
  struct Wire: Interceptor {
    let log: Log
    func onStart(_ start: inout CallStart) async throws {
      await log.add(start.metadata.first("authorization") ?? "none")
    }
  }

  @Test func aTokenIsSentToOneHostOnly() async throws {
    let (mine, other) = (try Server(), try Server())
    let runtime = try Runtime()
    let log = Log()
    try runtime.addInterceptor(
      "auth", .shared(events: .start, Authorization(host: mine.target)), priority: 10)
    try runtime.addInterceptor("wire", .shared(events: .start, Wire(log: log)), priority: -10)
    for server in [mine, other] {
      let channel = try Channel(server.target, options: .cleartext, on: runtime)
      _ = try await channel.unary("/penstock.Echo/Unary", [])
    }
    #expect(await log.lines == ["Bearer secret", "none"])
  }

  /// Fetches its token once for all calls; the calls wait for it, on this actor.
  actor Tokens: Interceptor {
    struct Refused: Error {}
    var fetched = 0
    let isValid: Bool
    init(isValid: Bool) { self.isValid = isValid }

    func onStart(_ start: inout CallStart) async throws {
      await Task.yield()
      guard isValid else { throw RPCError(.unauthenticated, "the token was refused") }
      fetched += 1
      start.metadata["authorization"] = ["token \(fetched)"]
    }
  }

  @Test func aTokenIsFetchedBeforeTheCallIsSent() async throws {
    try await withChannel { channel in
      let log = Log()
      try channel.addInterceptor("token", .shared(events: .start, Tokens(isValid: true)), priority: 10)
      try channel.addInterceptor("wire", .shared(events: .start, Wire(log: log)))
      for _ in 0..<3 { _ = try await channel.unary("/penstock.Echo/Unary", []) }
      #expect(await log.lines == ["token 1", "token 2", "token 3"])
    }
  }

  @Test func aTokenThatIsRefusedRejectsTheCall() async throws {
    try await withChannel { channel in
      let log = Log()
      try channel.addInterceptor("above", .shared(Noting(name: "above", log: log)), priority: 20)
      try channel.addInterceptor("token", .shared(events: .start, Tokens(isValid: false)), priority: 10)
      try channel.addInterceptor("below", .shared(Noting(name: "below", log: log)))
      let error = await #expect(throws: RPCError.self) {
        try await channel.unary("/penstock.Echo/Unary", [])
      }
      #expect(error == RPCError(.unauthenticated, "the token was refused"))
      let lines = await log.lines
      #expect(lines.contains("above status UNAUTHENTICATED"))
      #expect(!lines.contains { $0.hasPrefix("below") })
    }
  }

  @Test func anotherErrorIsInternalAndNamesTheInterceptor() async throws {
    struct Odd: Error {}
    struct Failing: Interceptor {
      func onResponse(_ message: inout InterceptedMessage) async throws { throw Odd() }
    }
    try await withChannel { channel in
      try channel.addInterceptor("odd one", .shared(Failing()))
      let error = await #expect(throws: RPCError.self) { try await channel.unary("/penstock.Echo/Unary", []) }
      #expect(error?.code == .internal)
      #expect(error?.message.contains("\"odd one\"") == true)
      #expect(error?.message.contains("Odd") == true)
    }
  }

  @Test func anErrorOfAnInterceptorHasItsDetails() async throws {
    let detail = Status.Detail(
      typeURL: "type.googleapis.com/google.rpc.RetryInfo", value: [0x0A, 0x02, 0x08, 0x05])
    struct Failing: Interceptor {
      let detail: Status.Detail
      func onStatus(_ status: inout Status) async throws {
        throw RPCError(.aborted, "ä", details: [detail], trailers: ["x-why": "test"])
      }
    }
    try await withChannel { channel in
      try channel.addInterceptor("details", .shared(Failing(detail: detail)))
      let error = await #expect(throws: RPCError.self) { try await channel.unary("/penstock.Echo/Unary", []) }
      #expect(error?.code == .aborted)
      #expect(error?.message == "ä")
      #expect(error?.status.details == [detail])
      #expect(error?.status.trailers["x-why"] == ["test"])
    }
  }

  @Test func messagesHeadersAndStatusAreChanged() async throws {
    struct Changing: Interceptor {
      func onStart(_ start: inout CallStart) async throws {
        start.metadata["x-message"] = ["changed"]
      }
      func onRequest(_ message: inout InterceptedMessage) async throws {
        if message.bytes == bytes("drop") {
          message.drop()
        } else {
          message.bytes.append(contentsOf: bytes("!"))
        }
      }
      func onHeaders(_ headers: inout Metadata) async throws { headers["x-new"] = ["header"] }
      func onResponse(_ message: inout InterceptedMessage) async throws { message.bytes.reverse() }
      func onStatus(_ status: inout Status) async throws {
        status.code = .dataLoss
        status.trailers[binary: "x-new-bin"] = [[0, 255]]
      }
    }
    try await withChannel { channel in
      try channel.addInterceptor("changes", .shared(Changing()))
      let responses = try await channel.bidi(
        "/penstock.Echo/Bidi", stream(["ab", "drop", "cd"].map(bytes)))
      var all: [String] = []
      let error = await #expect(throws: RPCError.self) {
        for try await response in responses { all.append(text(response)) }
      }
      #expect(all == ["!ba", "!dc"])
      #expect(await responses.headers()?["x-new"] == ["header"])
      #expect(error?.code == .dataLoss, "\(String(describing: error))")
      #expect(error?.status.trailers[binary: "x-new-bin"] == [[0, 255]])
    }
  }

  @Test func anInterceptorAnswersInPlaceOfTheServer() async throws {
    struct Stub: Interceptor {
      func onStart(_ start: inout CallStart) async throws {
        start.answer(CallAnswer(headers: ["x-stub": "1"], messages: [bytes("stub")]))
      }
    }
    // Nothing listens there.
    let channel = try Channel("127.0.0.1:1", options: .cleartext)
    try channel.addInterceptor("stub", .shared(Stub()), methods: ["/penstock.Echo/*"], kinds: [.unary])
    let response = try await channel.unary("/penstock.Echo/Unary", [])
    #expect(response == bytes("stub"))
    await #expect(throws: RPCError.self) { try await channel.unary("/other.Service/Unary", []) }
    await #expect(throws: RPCError.self) {
      try await channel.clientStream("/penstock.Echo/Unary", stream([]))
    }
  }

  @Test func aFactoryChoosesItsCallsAndMakesAnInstanceForEach() async throws {
    actor Counting: Interceptor {
      var events = 0
      let log: Log
      init(_ log: Log) { self.log = log }
      func onRequest(_ message: inout InterceptedMessage) async throws { events += 1 }
      func onStatus(_ status: inout Status) async throws { await log.add("\(events)") }
    }
    try await withChannel { channel in
      let log = Log()
      try channel.addInterceptor("counts", .perCall { $0.kind == .unary ? nil : Counting(log) })
      for count in [0, 3, 1] {
        let requests = [[UInt8]](repeating: [1], count: count)
        _ = try await channel.clientStream("/penstock.Echo/ClientStream", stream(requests))
      }
      _ = try await channel.unary("/penstock.Echo/Unary", [])
      #expect(await log.lines == ["0", "3", "1"])
    }
  }

  @Test func theMainActorIsAQueueToo() async throws {
    @MainActor final class OnMain: Interceptor {
      var seen = 0
      func onStart(_ start: inout CallStart) async throws {
        MainActor.assertIsolated()
        seen += 1
      }
    }
    let main = await MainActor.run { OnMain() }
    try await withChannel { channel in
      try channel.addInterceptor("main", .shared(main))
      _ = try await channel.unary("/penstock.Echo/Unary", [])
    }
    #expect(await main.seen == 1)
  }

  @Test func oneDirectionWaitsAndKeepsItsOrder() async throws {
    struct Slow: Interceptor {
      let log: Log
      func onRequest(_ message: inout InterceptedMessage) async throws {
        let name = text(message.bytes)
        await log.add("begin \(name)")
        for _ in 0..<Int.random(in: 0..<20) { await Task.yield() }
        await log.add("end \(name)")
      }
      func onResponse(_ message: inout InterceptedMessage) async throws {
        for _ in 0..<Int.random(in: 0..<20) { await Task.yield() }
      }
    }
    try await withChannel { channel in
      let log = Log()
      for priority in 0..<3 as Range<Int32> {
        let slow = Slow(log: priority == 0 ? log : Log())
        try channel.addInterceptor("slow", .shared(slow), priority: priority)
      }
      let numbers = (0..<100).map { "\($0)" }
      var all: [String] = []
      for try await response in try await channel.bidi("/penstock.Echo/Bidi", stream(numbers.map(bytes))) {
        all.append(text(response))
      }
      #expect(all == numbers)
      #expect(await log.lines == numbers.flatMap { ["begin \($0)", "end \($0)"] })
    }
  }

  @Test func aCancelledCallCancelsTheFunctionThatWaits() async throws {
    struct Waiting: Interceptor {
      let log: Log
      func onStart(_ start: inout CallStart) async throws {
        await log.add("waits")
        do { try await Task.sleep(for: .seconds(600)) } catch {
          await log.add("woken")
          throw error
        }
      }
      func onStatus(_ status: inout Status) async throws { await log.add("status \(status.code)") }
    }
    try await withChannel { channel in
      let log = Log()
      try channel.addInterceptor("above", .shared(Noting(name: "above", log: log)), priority: 1)
      try channel.addInterceptor("waiting", .shared(Waiting(log: log)))
      let call = try channel.call(Method("/penstock.Echo/Bidi"), .bidi)
      await eventually { await log.lines.contains("waits") }
      call.cancel()
      #expect(await call.status().code == .cancelled)
      await eventually { await log.lines.count >= 5 }
      let lines = await log.lines
      #expect(lines.filter { !$0.hasPrefix("above") } == ["waits", "woken", "status CANCELLED"])
      #expect(lines.filter { $0.hasPrefix("above") } == ["above start", "above status CANCELLED"])
    }
  }

  @Test func anInterceptorThatEndsACallTellsThoseBelow() async throws {
    struct Ending: Interceptor {
      func onResponse(_ message: inout InterceptedMessage) async throws {
        throw RPCError(.outOfRange, "enough")
      }
    }
    try await withChannel { channel in
      let log = Log()
      try channel.addInterceptor("ending", .shared(Ending()), priority: 1)
      try channel.addInterceptor("below", .shared(Noting(name: "below", log: log)))
      let error = await #expect(throws: RPCError.self) {
        for try await _ in try await channel.serverStream(
          "/penstock.Echo/ServerStream", [], options: .asking(["x-count": "1000000"]))
        {}
      }
      #expect(error?.message == "enough")
      await eventually { await log.lines.contains("below cancel OUT_OF_RANGE") }
    }
  }
}
