import Penstock
import Testing

/// Interceptors are added, moved, replaced and removed while calls run.
@Suite(.timeLimit(.minutes(15))) struct RegistrationTests {
  /// The order in which interceptors see a call.
  static func order(_ channel: Channel, _ log: Log) async throws -> [String] {
    let before = await log.lines.count
    _ = try await channel.unary("/penstock.Echo/Unary", [])
    return await log.lines.dropFirst(before).map { String($0.prefix(1)) }
  }

  static func noting(_ name: String, _ log: Log) -> Interception {
    .shared(events: .start, Noting(name: name, log: log))
  }

  @Test func prioritiesChangeOnALiveChannel() async throws {
    try await withChannel { channel in
      let log = Log()
      let a = try channel.addInterceptor("a", Self.noting("A", log), priority: 2)
      let b = try channel.addInterceptor("b", Self.noting("B", log), priority: 1)
      let first = try await Self.order(channel, log)
      #expect(first == ["A", "B"])
      try b.setPriority(3)
      #expect(b.priority == 3)
      #expect(try await Self.order(channel, log) == ["B", "A"])
      try a.replace("c", Self.noting("C", log))
      #expect(try await Self.order(channel, log) == ["B", "C"])
      try b.setFilter(methods: ["/other/*"])
      #expect(try await Self.order(channel, log) == ["C"])
      #expect(try channel.interceptors().contains("\"name\":\"c\""))
      try a.remove()
      #expect(try await Self.order(channel, log) == [])
      #expect(throws: PenstockError.self) { try a.remove() }
      try await a.waitRemoved(within: .seconds(20))
      await #expect(throws: PenstockError.self) { try await b.waitRemoved(within: .zero) }
    }
  }

  @Test func aRemovedInterceptorIsFreedWhenItsLastCallHasEnded() async throws {
    final class Kept: Interceptor {}
    try await withChannel { channel in
      weak var weakly: Kept?
      let registration: Registration
      do {
        let kept = Kept()
        weakly = kept
        registration = try channel.addInterceptor("kept", .shared(kept))
      }
      let call = try channel.call(Method("/penstock.Echo/Bidi"), .bidi)
      try await call.send([1])
      #expect(try await call.response() == [1])
      try registration.remove()
      let error = await #expect(throws: PenstockError.self) {
        try await registration.waitRemoved(within: .milliseconds(1))
      }
      #expect(error?.code == .timeout)
      #expect(weakly != nil)
      call.halfClose()
      #expect(await call.status().code == .ok)
      try await registration.waitRemoved(within: .seconds(20))
      await eventually { weakly == nil }
    }
  }

  @Test func aPatternThatNoMethodMatchesIsRefused() async throws {
    final class Kept: Interceptor {}
    try await withChannel { channel in
      weak var weakly: Kept?
      do {
        let kept = Kept()
        weakly = kept
        #expect(throws: PenstockError.self) {
          try channel.addInterceptor("odd", .shared(kept), methods: ["no slash"])
        }
      }
      #expect(weakly == nil)
    }
  }

  @Test func interceptorsComeAndGoWhileCallsRun() async throws {
    try await withChannel { channel in
      let log = Log()
      try await withThrowingTaskGroup(of: Void.self) { group in
        group.addTask {
          for number in 0..<100 {
            let registration = try channel.addInterceptor(
              "\(number)", Self.noting("X", log), priority: Int32.random(in: -9...9))
            await Task.yield()
            try registration.setPriority(.random(in: -9...9))
            try registration.replace("other", .around { try await $0.next() })
            try registration.remove()
            try await registration.waitRemoved(within: .seconds(20))
          }
        }
        for _ in 0..<8 {
          group.addTask {
            for _ in 0..<50 {
              let response = try await channel.unary("/penstock.Echo/Unary", [7])
              #expect(response == [7])
            }
          }
        }
        try await group.waitForAll()
      }
      #expect(try channel.interceptors() == "[]")
    }
  }
}
