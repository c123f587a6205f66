import CPenstock
import Testing

@testable import Penstock

/// The first part of an answer, as a transport for another library waits for it.
@Suite(.timeLimit(.minutes(15))) struct BeginningTests {
  /// Lets an interceptor of the C API answer the calls of a channel, without headers.
  static func answer(_ channel: Channel, with messages: Bool) throws {
    var table = penstock_interceptor()
    table.struct_size = MemoryLayout<penstock_interceptor>.size
    table.on_start = { _, _ in PENSTOCK_TAKE }
    table.on_half_close = { hop, data in
      if data != nil {
        for message: [UInt8] in [[1], [2]] { penstock_hop_deliver(hop, message, 1) }
      }
      var status: OpaquePointer?
      penstock_status_new(data == nil ? 9 : 0, nil, &status)
      penstock_hop_deliver_status(hop, status)
      penstock_status_release(status)
      return PENSTOCK_NEXT
    }
    table.user_data = messages ? UnsafeMutableRawPointer(bitPattern: 1) : nil
    var id: penstock_interceptor_id = 0
    let result = penstock_channel_add_interceptor(channel.handle.pointer, &table, 0, &id, nil)
    #expect(result == PENSTOCK_OK)
  }

  @Test(arguments: [CallKind.serverStream, .bidi])
  func anAnswerOfAnInterceptorMayBeginWithAMessage(_ kind: CallKind) async throws {
    try await withChannel { channel in
      try Self.answer(channel, with: true)
      let call = try channel.call(Method("/penstock.Echo/Bidi"), kind)
      try await call.send([])
      call.halfClose()
      guard case .message = await call.beginning() else {
        Issue.record("no message")
        return
      }
      var all: [[UInt8]] = []
      for try await response in call.responses { all.append(response) }
      #expect(all == [[1], [2]])
      #expect(await call.status().code == .ok)
    }
  }

  @Test(arguments: [CallKind.serverStream, .bidi])
  func nobodyWaitsForHeadersThatAnAnswerDoesNotHave(_ kind: CallKind) async throws {
    try await withChannel { channel in
      try Self.answer(channel, with: true)
      // A wait without end would be cut by the deadline, whose status the reader gets then.
      let call = try channel.call(
        Method("/penstock.Echo/Bidi"), kind, options: CallOptions(timeout: .seconds(60)))
      try await call.send([])
      call.halfClose()
      #expect(try await call.headers() == nil)
      #expect(!call.hasEnded)
      #expect(try await call.response() == [1])
      // Nor after the first message was taken; and no further one is asked for.
      #expect(try await call.headers() == nil)
      #expect(await call.responses.headers() == nil)
      #expect(!call.hasEnded)
      var rest: [[UInt8]] = []
      for try await response in call.responses { rest.append(response) }
      #expect(rest == [[2]])
      #expect(await call.status().code == .ok)
    }
  }

  @Test(arguments: CallKind.allCases)
  func anAnswerMayBeAnEnd(_ kind: CallKind) async throws {
    try await withChannel { channel in
      try Self.answer(channel, with: false)
      let call = try channel.call(Method("/penstock.Echo/Bidi"), kind)
      try await call.send([])
      call.halfClose()
      guard case .end(let status) = await call.beginning() else {
        Issue.record("no end")
        return
      }
      #expect(status.code == .failedPrecondition)
    }
  }

  @Test(arguments: CallKind.allCases)
  func anAnswerOfAServerBeginsWithHeaders(_ kind: CallKind) async throws {
    try await withChannel { channel in
      let call = try channel.call(Method("/penstock.Echo/Bidi"), kind, options: .asking(["x-headers-a": "b"]))
      try await call.send([3])
      call.halfClose()
      guard case .headers(let headers) = await call.beginning() else {
        Issue.record("no headers")
        return
      }
      #expect(headers["x-headers-a"] == ["b"])
      #expect(try await call.response() == [3])
    }
  }
}
