import Penstock
import Testing

/// Interceptors that are closures with `proceed`.
@Suite(.timeLimit(.minutes(15))) struct FunctionsTests {
  /// Closures that note what they see, in one order on the way out and in the other on the way back.
  static func noting(_ name: String, _ log: Log) -> Interception {
    .functions { _ in
      InterceptorFunctions(
        start: { start, proceed in
          Task {
            await log.add("\(name) out")
            proceed(start)
          }
        },
        response: { message, proceed in
          var message = message
          message.bytes.append(contentsOf: bytes(name))
          proceed(message)
        },
        status: { status, proceed in
          Task {
            await log.add("\(name) back")
            proceed(status)
          }
        })
    }
  }

  @Test func theFirstIsFirstOutAndLastBack() async throws {
    try await withChannel { channel in
      let log = Log()
      for name in ["A", "B", "C"] { try channel.addInterceptor(name, Self.noting(name, log)) }
      let response = try await channel.unary("/penstock.Echo/Unary", bytes("-"))
      #expect(text(response) == "-CBA")
      #expect(await log.lines == ["A out", "B out", "C out", "C back", "B back", "A back"])
    }
  }

  @Test func anErrorInPlaceOfAValueEndsTheCall() async throws {
    try await withChannel { channel in
      let refusing = Interception.functions { info in
        guard info.kind == .unary else { return nil }
        return InterceptorFunctions(start: { _, proceed in
          proceed(.failure(RPCError(.permissionDenied, "no")))
          proceed(.failure(RPCError(.aborted, "too late")))
        })
      }
      try channel.addInterceptor("refuses", refusing)
      let error = await #expect(throws: RPCError.self) { try await channel.unary("/penstock.Echo/Unary", []) }
      #expect(error == RPCError(.permissionDenied, "no"))
      let response = try await channel.clientStream("/penstock.Echo/ClientStream", stream([[1]]))
      #expect(response == [1])
    }
  }

  @Test func aDroppedProceedEndsTheCall() async throws {
    try await withChannel { channel in
      let dropping = Interception.functions { _ in InterceptorFunctions(headers: { _, _ in }) }
      try channel.addInterceptor("drops", dropping)
      let error = await #expect(throws: RPCError.self) { try await channel.unary("/penstock.Echo/Unary", []) }
      #expect(error?.code == .internal)
      #expect(error?.message.contains("\"drops\"") == true)
    }
  }
}
