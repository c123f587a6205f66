import Testing

@testable import Penstock

/// Objects that are made are freed: the objects of Swift, and those of the library behind them.
@Suite(.timeLimit(.minutes(15))) struct LifeTests {
  /// References that keep nothing alive.
  final class Watched: Sendable {
    // Any thread may ask a weak reference whether its object lives.
    private struct Weak: @unchecked Sendable { weak var object: AnyObject? }
    private let all = Locked<[Weak]>([])

    func watch(_ object: AnyObject) {
      let weak = Weak(object: object)
      all.withLock { $0.append(weak) }
    }
    /// In full mode a handle of the C API is a reference to a Swift object of the library.
    func watch(behind handle: Handle) {
      watch(Unmanaged<AnyObject>.fromOpaque(UnsafeRawPointer(handle.pointer)).takeUnretainedValue())
    }
    var living: Int { all.withLock { $0.count { $0.object != nil } } }
    var count: Int { all.withLock { $0.count } }
  }

  @Test func nothingIsLeftOfCallsChannelsAndRuntimes() async throws {
    let watched = Watched()
    try await Self.work(watched)
    #expect(watched.count > 40)
    await eventually { watched.living == 0 }
  }

  static func work(_ watched: Watched) async throws {
    let server = try Server()
    let runtime = try Runtime(RuntimeOptions(loops: 2))
    watched.watch(behind: runtime.handle)
    for round in 0..<5 {
      let channel = try Channel(server.target, options: .cleartext, on: runtime)
      watched.watch(behind: channel.handle)
      for kind in CallKind.allCases {
        let call = try channel.call(Method("/penstock.Echo/Bidi"), kind)
        watched.watch(behind: call.line.handle)
        watched.watch(call.line.events)
        try await call.send([1])
        if round % 2 == 0 {
          call.halfClose()
          for try await response in call.responses { #expect(response == [1]) }
        } else {
          call.cancel()
        }
        #expect(await call.status().code == (round % 2 == 0 ? .ok : .cancelled))
      }
      let responses = try await channel.bidi("/penstock.Echo/Bidi", stream([[1], [2]]))
      watched.watch(behind: responses.line.handle)
      watched.watch(responses.line.events)
      var iterator = responses.makeAsyncIterator()
      _ = try await iterator.next()
    }
    // The watch is the library's until the channel has closed.
    let channel = try Channel(server.target, options: .cleartext, on: runtime)
    var states = channel.connectivityChanges().makeAsyncIterator()
    #expect(await states.next() == .idle)
    channel.connect()
    while let state = await states.next(), state != .ready {}
    channel.close()
    while let state = await states.next() { #expect(state == .shutdown) }
    try await runtime.shutdown(within: .seconds(20))
  }
}
