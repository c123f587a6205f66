import GRPCCore
import Testing

/// Neither side of a call runs ahead of the other.
@Suite(.serialized, .timeLimit(.minutes(15))) struct FlowTests {
  actor Counted {
    private(set) var count = 0
    func up() { count += 1 }
  }

  /// Goes on when a number of calls to the same server have ended: in this time a stream without back pressure would go
  /// on, too.
  static func others(_ client: any EchoClient) async throws {
    for _ in 0..<100 { _ = try await client.unary([]) }
  }

  @Test func requestsWaitForTheServer() async throws {
    let server = try Server()
    try await withClient(to: server) { other in
      try await withClient(to: server) { client in
        let written = Counted()
        // The server answers each request, and stops reading when nobody reads its answers.
        let (before, after) = try await client.call(.bidi, [:], .defaults) { writer in
          let message = [UInt8](repeating: 7, count: 65_536)
          while true {
            try await writer.write(message)
            await written.up()
          }
        } _: { response in
          var before = -1
          while await written.count != before {
            before = await written.count
            try await Self.others(other)
          }
          var count = 0
          for try await _ in response.messages {
            count += 1
            if count == before { break }
          }
          return (before, await written.count)
        }
        // The windows of both sides, the send buffer, and what the sockets take.
        #expect(before > 0 && before * 65_536 < 48 << 20)
        #expect(after > before)
      }
    }
  }

  @Test func responsesWaitForTheReader() async throws {
    let server = try Server()
    try await withClient(to: server) { other in
      try await withClient(to: server) { client in
        let size = 1 << 20
        let (count, most) = try await client.call(.serverStream, ["x-count": "300"], .defaults) {
          try await $0.write([UInt8](repeating: 7, count: size))
        } _: { response in
          var (count, most) = (0, 0)
          let before = residentBytes()
          for try await message in response.messages {
            count += message.count == size ? 1 : 0
            if count % 100 == 1 { try await Self.others(other) }
            most = max(most, residentBytes() - before)
          }
          return (count, most)
        }
        #expect(count == 300)
        #expect(most < 100 << 20)
      }
    }
  }
}
