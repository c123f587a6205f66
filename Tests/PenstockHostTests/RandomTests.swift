import Glibc
import Penstock
import Synchronization
import Testing

/// Random calls with random interceptors whose functions wait, throw, drop and are cancelled: each call ends in a way that
/// its interceptors and its caller allow, each instance sees the events in their order, and nothing is left.
@Suite(.timeLimit(.minutes(15))) struct RandomTests {
  static let scenarios = 2_000
  static let atOnce: UInt64 = 16

  @Test func randomCallsKeepTheLaws() async throws {
    let seed = getenv("PENSTOCK_SEED").flatMap { UInt64(String(cString: $0)) } ?? .random(in: 0..<1 << 32)
    let judge = Judge()
    let runtime = try Runtime()
    try await withChannel(on: runtime) { channel in
      try await withThrowingTaskGroup(of: Void.self) { group in
        for worker in 0..<Self.atOnce {
          group.addTask {
            for number in 0..<UInt64(Self.scenarios) / Self.atOnce {
              let scenario = Scenario(seed: seed + worker * 1_000_000 + number, judge: judge)
              try await scenario.run(channel)
            }
          }
        }
        try await group.waitForAll()
      }
    }
    try await runtime.shutdown(within: .seconds(60))
    #expect(judge.broken.withLock { $0 } == [], "PENSTOCK_SEED=\(seed)")
    #expect(judge.ended.load(ordering: .relaxed) == Self.scenarios)
    // The functions for the end of a call may run a little longer than the call.
    await eventually { judge.living.load(ordering: .relaxed) == 0 }
    #expect(judge.thrown.load(ordering: .relaxed) > 0)
  }
}

/// The parts that all scenarios share.
private final class Judge: Sendable {
  let broken = Mutex<[String]>([])
  let ended = Atomic(0)
  /// How many instances of interceptors there are.
  let living = Atomic(0)
  let thrown = Atomic(0)

  func expect(_ holds: Bool, _ what: @autoclosure () -> String) {
    if !holds { broken.withLock { $0.append(what()) } }
  }
}

/// Makes random numbers from a seed (SplitMix64).
private struct Chance: RandomNumberGenerator {
  var state: UInt64

  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var mixed = state
    mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
    return mixed ^ (mixed >> 31)
  }

  mutating func isLucky(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &self) < percent }
}

private struct Planned: Error {}

/// An instance, each of whose functions passes, waits, throws or drops.
private final class Random: Interceptor {
  enum Action: Sendable { case pass, refuse, fail, drop }
  enum Event: Int, CaseIterable { case start, request, halfClose, headers, response, status }

  private struct State {
    var reached = [0, 0]
    var running = [false, false]
    var isCancelled = false
  }

  private let plan: [(action: Action, turns: Int)]
  private let state = Mutex(State())
  private let judge: Judge
  private let seed: UInt64

  init(_ chance: inout Chance, seed: UInt64, judge: Judge) {
    var plan: [(Action, Int)] = []
    for _ in Event.allCases {
      let draw = Int.random(in: 0..<100, using: &chance)
      let action: Action = draw < 90 ? .pass : draw < 93 ? .refuse : draw < 96 ? .fail : .drop
      plan.append((action, [0, 0, 1, 5, 20].randomElement(using: &chance)!))
    }
    self.plan = plan
    self.seed = seed
    self.judge = judge
    judge.living.add(1, ordering: .relaxed)
  }

  deinit { judge.living.subtract(1, ordering: .relaxed) }

  /// The functions of a direction run in the order of its events, one at a time. Returns whether a message is dropped.
  private func step(_ event: Event) async throws -> Bool {
    let direction = event.rawValue / 3
    state.withLock { state in
      judge.expect(!state.running[direction], "\(seed): \(event) while another function runs")
      judge.expect(state.reached[direction] <= event.rawValue, "\(seed): \(event) too late")
      judge.expect(!state.isCancelled, "\(seed): \(event) after onCancel")
      state.reached[direction] = event == .status ? 6 : event.rawValue
      state.running[direction] = true
    }
    defer { state.withLock { $0.running[direction] = false } }
    let (action, turns) = plan[event.rawValue]
    for _ in 0..<turns { await Task.yield() }
    switch action {
    case .pass: return false
    case .drop: return true
    case .refuse: throw RPCError(.aborted, "planned")
    case .fail:
      judge.thrown.add(1, ordering: .relaxed)
      throw Planned()
    }
  }

  func onStart(_ start: inout CallStart) async throws { _ = try await step(.start) }
  func onRequest(_ message: inout InterceptedMessage) async throws {
    if try await step(.request) { message.drop() }
  }
  func onHalfClose() async throws { _ = try await step(.halfClose) }
  func onHeaders(_ headers: inout Metadata) async throws { _ = try await step(.headers) }
  func onResponse(_ message: inout InterceptedMessage) async throws {
    if try await step(.response) { message.drop() }
  }
  func onStatus(_ status: inout Status) async throws { _ = try await step(.status) }
  func onCancel(_ status: Status) async {
    state.withLock { state in
      judge.expect(!state.isCancelled, "\(seed): a second onCancel")
      judge.expect(state.running == [false, false], "\(seed): onCancel while another function runs")
      state.isCancelled = true
    }
  }
}

/// One call, its interceptors, and perhaps a task that is cancelled.
private struct Scenario {
  let seed: UInt64
  let judge: Judge

  func run(_ channel: Channel) async throws {
    var chance = Chance(state: seed)
    var registrations: [Registration] = []
    let method = "/penstock.Echo/"
    let kind = [CallKind.unary, .clientStream, .serverStream, .bidi].randomElement(using: &chance)!
    for place in 0..<Int32.random(in: 0..<4, using: &chance) {
      let mine = Chance(state: chance.next())
      let interception = Interception.perCall { [seed, judge] info in
        var chance = mine
        guard info.metadata.first("x-scenario") == "\(seed)" else { return nil }
        return Random(&chance, seed: seed, judge: judge)
      }
      registrations.append(try channel.addInterceptor("random", interception, priority: place))
    }
    var options = CallOptions.asking(["x-scenario": "\(seed)", "x-repeat": "3"])
    let timeouts: [Duration?] = [nil, nil, .milliseconds(3), .milliseconds(20)]
    options.timeout = timeouts.randomElement(using: &chance)!
    let messages = (0..<Int.random(in: 1..<6, using: &chance)).map { [UInt8($0)] }
    let task = Task { [options] in
      switch kind {
      case .unary: _ = try await channel.unary(method + "Unary", messages[0], options: options)
      case .clientStream:
        _ = try await channel.clientStream(method + "ClientStream", stream(messages), options: options)
      case .serverStream:
        let responses = try await channel.serverStream(method + "ServerStream", messages[0], options: options)
        for try await _ in responses {}
      case .bidi:
        for try await _ in try await channel.bidi(method + "Bidi", stream(messages), options: options) {}
      }
    }
    if chance.isLucky(20) {
      for _ in 0..<[0, 1, 10, 40].randomElement(using: &chance)! { await Task.yield() }
      task.cancel()
    }
    do { try await task.value } catch let error as RPCError {
      // A dropped message may be missed by the server, or on this side.
      let allowed: Set<Status.Code> = [.aborted, .internal, .cancelled, .deadlineExceeded, .unimplemented]
      judge.expect(allowed.contains(error.code), "\(seed): \(error)")
    }
    for registration in registrations { try registration.remove() }
    judge.ended.add(1, ordering: .relaxed)
  }
}
