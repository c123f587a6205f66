import Testing

@testable import PenstockLaws

@testable import PenstockFraming
@testable import PenstockTransport

/// Checks that random chains of interceptors keep the laws of docs/laws.md with another framing and
/// another transport.
@Suite(.serialized) struct DoorTests {
  @Test(arguments: [Framing.Opening.atOnce, .whole])
  func lawsHoldOnAnotherTransport(_ opening: Framing.Opening) {
    let channel = MemoryChannel(opening, seed: 1)
    for seed in UInt64(1)...3000 {
      var scenario = Scenario.random(seed)
      // A real transport delivers no message before the headers, and nothing is sent after the half-close. So
      // the scenario is changed accordingly.
      for index in scenario.servers.indices { scenario.servers[index].putHeadersFirst() }
      if opening == .whole { scenario.endWithHalfClose() }
      guard let failure = run(scenario, channel, isVerbose: false) else { continue }
      let shown = run(scenario, channel, isVerbose: true) ?? failure
      Issue.record(
        "seed \(seed) breaks \(shown.law): \(shown.what)\n\(scenario.words)\n\(shown.trace.joined(separator: "\n"))"
      )
      return
    }
    // Runs the work that the last scenario has left in the loop.
    _ = channel.runtime.poll(timeoutMilliseconds: 0)
    channel.core.close(.channelClosed)
    _ = channel.runtime.shutdown(timeoutMilliseconds: 1000)
  }
}

/// Plays the scenario again and again, each time with another order of events, until a play keeps the laws.
/// If no play does, returns the first failure. The attempts of each play are released after it.
private func run(_ scenario: Scenario, _ channel: MemoryChannel, isVerbose: Bool) -> Play.Failure? {
  var failure: Play.Failure?
  for number in 0..<2_000 {
    defer { channel.clear() }
    guard let found = Play.run(scenario, Order(number), isVerbose, below: { AttemptBelow(channel) }) else {
      #expect(channel.isClear, "a call has ended, and its attempt has not")
      return nil
    }
    failure = failure ?? found
  }
  return failure
}

extension ServerPlan {
  fileprivate mutating func putHeadersFirst() {
    for item in items {
      switch item {
      case .headers: return
      case .message: return items.insert(.headers, at: 0)
      case .status, .refused: break
      }
    }
  }
}

extension Scenario {
  /// Changes the scenario so that the call sends nothing after its half-close, because no real caller could
  /// do so.
  fileprivate mutating func endWithHalfClose() {
    var hasEnded = firstMessage != nil
    for index in steps.indices {
      switch steps[index].act {
      case .halfClose where !hasEnded: hasEnded = true
      case .halfClose, .send: if hasEnded { steps[index].act = .nothing }
      case .nothing, .demand, .cancel, .server, .sent, .lose, .tick, .resolve, .resolveAny, .hop, .goOn,
        .work:
        break
      }
    }
  }
}
