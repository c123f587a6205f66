import Penstock
import Testing

/// Interceptors that are one function around the call.
@Suite(.timeLimit(.minutes(15))) struct AroundTests {
  @Test func aFunctionSeesTheCallOnBothWays() async throws {
    try await withChannel { channel in
      let log = Log()
      for name in ["A", "B"] {
        let around = Interception.around { call in
          await log.add("\(name) out")
          call.start.metadata["x-\(name)"] = ["1"]
          try await call.next()
          await log.add("\(name) back")
          call.response = bytes("\(name)(") + (call.response ?? []) + bytes(")")
        }
        try channel.addInterceptor(name, around)
      }
      let response = try await channel.unary("/penstock.Echo/Unary", bytes("x"))
      #expect(text(response) == "A(B(x))")
      #expect(await log.lines == ["A out", "B out", "B back", "A back"])
    }
  }

  @Test func nextIsCalledAgainForARetry() async throws {
    try await withChannel { channel in
      let log = Log()
      let retry = Interception.around { call in
        for attempt in 1... {
          do { return try await call.next() } catch let error as RPCError where error.code == .unavailable {
            await log.add("attempt \(attempt)")
            call.start.metadata["x-status"] = attempt < 3 ? ["14"] : []
          }
        }
      }
      try channel.addInterceptor("retry", retry, priority: 1)
      let options = CallOptions.asking(["x-status": "14"])
      let response = try await channel.unary("/penstock.Echo/Unary", bytes("again"), options: options)
      #expect(response == bytes("again"))
      #expect(await log.lines == ["attempt 1", "attempt 2", "attempt 3"])
      let streamed = try await channel.clientStream(
        "/penstock.Echo/ClientStream", stream([[1], [2]]), options: options)
      #expect(streamed == [1, 2])
    }
  }

  @Test func aResponseIsNotTakenAndTheCallSentAgain() async throws {
    try await withChannel { channel in
      let again = Interception.around { call in
        try await call.next()
        call.start.metadata["x-mode"] = ["count"]
        try await call.next()
      }
      try channel.addInterceptor("again", again)
      let response = try await channel.clientStream("/penstock.Echo/ClientStream", stream([[1], [2], [3]]))
      #expect(text(response) == "3")
    }
  }

  @Test func aCallThatCannotBeSentAgainSaysSo() async throws {
    try await withChannel { channel in
      let again = Interception.around(replayBytes: 10, maxRestarts: 1) { call in
        try await call.next()
        try await call.next()
        try await call.next()
      }
      try channel.addInterceptor("again", again)
      for size in [1, 100] {
        let error = await #expect(throws: RPCError.self) {
          try await channel.unary("/penstock.Echo/Unary", [UInt8](repeating: 1, count: size))
        }
        #expect(error?.code == .internal)
        #expect(error?.message.contains("can't be sent again") == true)
      }
    }
  }

  @Test func theStatusOfTheServerPassesAsItCame() async throws {
    try await withChannel { channel in
      try channel.addInterceptor("passes", .around { try await $0.next() })
      let error = await #expect(throws: RPCError.self) {
        try await channel.unary(
          "/penstock.Echo/Unary", [], options: .asking(["x-status": "5", "x-message": "gone"]))
      }
      #expect(error?.code == .notFound)
      #expect(error?.message == "gone")
    }
  }

  /// The status, the headers and the response of a call can be replaced when they have come, and not before.
  @Test(arguments: [(Status.Code.notFound, Status.Code.dataLoss), (.ok, .aborted)])
  func aStatusIsReplaced(_ came: Status.Code, _ goesOn: Status.Code) async throws {
    try await withChannel { channel in
      let log = Log()
      let around = Interception.around { call in
        call.status = Status(.unknown, "early")
        call.headers = ["x-early": "1"]
        call.response = [9]
        await log.add(
          "\(call.status == nil) \(call.headers == nil) \(call.response == nil) \(call.canGoAgain)")
        do { try await call.next() } catch let error as RPCError { await log.add(error.code.description) }
        call.status = nil
        await log.add("\(call.status?.code == came) \(call.canGoAgain)")
        call.status = Status(goesOn, "replaced")
      }
      try channel.addInterceptor("replaces", around)
      let error = await #expect(throws: RPCError.self) {
        try await channel.unary(
          "/penstock.Echo/Unary", [1], options: .asking(["x-status": "\(came.rawValue)"]))
      }
      #expect(error?.code == goesOn && error?.message == "replaced")
      let failure = came == .ok ? [] : [came.description]
      #expect(await log.lines == ["true true true false"] + failure + ["true true"])
    }
  }

  @Test func errorsEndTheCallOnEitherWay() async throws {
    struct Odd: Error {}
    try await withChannel { channel in
      let around = Interception.around { call in
        if call.start.metadata.first("x-when") == "before" { throw RPCError(.permissionDenied, "no") }
        try await call.next()
        if call.start.metadata.first("x-when") == "after" { throw RPCError(.dataLoss, "late") }
        if call.start.metadata.first("x-when") == "odd" { throw Odd() }
      }
      try channel.addInterceptor("guard", around)
      for (when, code) in [("before", .permissionDenied), ("after", .dataLoss), ("odd", .internal)]
        as [(String, Status.Code)]
      {
        let error = await #expect(throws: RPCError.self) {
          try await channel.unary("/penstock.Echo/Unary", [], options: .asking(["x-when": when]))
        }
        #expect(error?.code == code)
        let streamed = await #expect(throws: RPCError.self) {
          for try await _ in try await channel.bidi(
            "/penstock.Echo/Bidi", stream([[1]]), options: .asking(["x-when": when]))
          {}
        }
        #expect(streamed?.code == code)
      }
    }
  }

  @Test func aStreamPassesBehindItsHeaders() async throws {
    try await withChannel { channel in
      let around = Interception.around { call in
        try await call.next()
        call.headers?["x-seen"] = ["yes"]
      }
      try channel.addInterceptor("stream", around)
      let responses = try await channel.serverStream(
        "/penstock.Echo/ServerStream", [1], options: .asking(["x-count": "20"]))
      var count = 0
      for try await _ in responses { count += 1 }
      #expect(count == 20)
      #expect(await responses.headers()?["x-seen"] == ["yes"])
    }
  }

  @Test func aFunctionAnswersOrLetsTheCallGoWithoutWaiting() async throws {
    try await withChannel { channel in
      try channel.addInterceptor("passes", .around { _ in }, priority: 1)
      try channel.addInterceptor(
        "stub",
        .around { call in
          if call.start.metadata.first("x-stub") != nil {
            call.start.answer(CallAnswer(messages: [bytes("stub")]))
          }
        })
      let response = try await channel.unary("/penstock.Echo/Unary", bytes("x"))
      #expect(response == bytes("x"))
      #expect(
        try await channel.unary("/penstock.Echo/Unary", [], options: .asking(["x-stub": "1"]))
          == bytes("stub"))
    }
  }

  @Test(arguments: ["before", "next", "after"])
  func aCancelledCallEndsTheFunction(_ place: String) async throws {
    let runtime = try Runtime()
    try await withChannel(on: runtime) { channel in
      let log = Log()
      let around = Interception.around { call in
        do {
          await log.add("waits")
          if place == "before" { try await Task.sleep(for: .seconds(600)) }
          if place == "next" { call.start.metadata["x-delay-ms"] = ["60000"] }
          try await call.next()
          await log.add("waits")
          try await Task.sleep(for: .seconds(600))
        } catch {
          await log.add(error is CancellationError ? "cancelled" : "\(error)")
          throw error
        }
      }
      try channel.addInterceptor("waits", around)
      let task = Task { try await channel.unary("/penstock.Echo/Unary", []) }
      let waits = ["before": 1, "next": 1, "after": 2][place] ?? 0
      await eventually { await log.lines.count >= waits }
      try await eventually { try place != "next" || runtime.snapshot().contains("waiting for the server") }
      task.cancel()
      let error = await #expect(throws: RPCError.self) { try await task.value }
      #expect(error?.code == .cancelled)
      await eventually { await log.lines.count != waits }
      let said = await log.lines.last
      #expect(place == "next" ? said?.hasPrefix("CANCELLED") == true : said == "cancelled")
    }
  }

  @Test func theFunctionOfACallIsFreedWithIt() async throws {
    final class Kept: Sendable {}
    weak var weakly: Kept?
    try await withChannel { channel in
      let registration: Registration
      do {
        let kept = Kept()
        weakly = kept
        registration = try channel.addInterceptor(
          "kept",
          .around { call in
            try await call.next()
            withExtendedLifetime(kept) {}
          })
      }
      for kind in CallKind.allCases {
        let call = try channel.call(Method("/penstock.Echo/Bidi"), kind)
        try await call.send([1])
        call.halfClose()
        for try await response in call.responses { #expect(response == [1]) }
      }
      try registration.remove()
      try await registration.waitRemoved(within: .seconds(20))
    }
    await eventually { weakly == nil }
  }
}
