import PenstockCall
import Testing

@testable import PenstockLaws

/// Tests of the model by which the laws are checked. In one step a hop returns HOLD for a message, and the
/// `sent` of another message comes. Which of the two was first may show only in a later step, or never.
@Suite struct HeldSentTests {
  private func reaction(_ verdict: Verdict, _ operations: [PenstockLaws.Operation] = []) -> Reaction {
    Reaction(operations: operations, verdict: verdict.rawValue, takesTicket: false)
  }

  /// A hop with on_send. The first messages get `reactions`, in order; later ones get NEXT.
  private func hop(_ index: Int, _ reactions: [Reaction]) -> HopPlan {
    var all = [[Reaction]](repeating: [], count: 12)
    all[Int(EventKind.send.rawValue)] = reactions
    return HopPlan(
      registration: index, isObject: false, isPerAttempt: false, create: .none,
      callbacks: 1 << UInt32(EventKind.send.rawValue), holdBytes: 0, shares: false, reactions: all)
  }

  private func scenario(_ reactions: [[Reaction]], _ steps: [Step] = []) -> Scenario {
    Scenario(
      kind: .bidi, hops: reactions.enumerated().map { hop($0, $1) }, steps: steps,
      servers: [ServerPlan(items: [.headers])], firstMessage: nil, firstDemand: 0, demandsWhenServed: false)
  }

  /// The lowest hop drops a message that the middle hop has injected, and in the same step the middle hop
  /// returns HOLD for another message. The `sent` of the dropped message comes after both, and stops at the
  /// middle hop, which injected that message. The middle hop then reports its held message as sent. This
  /// report stops at the top hop, because the top hop has injected its oldest message in flight. So no
  /// callback shows the report before the top hop returns HOLD for a message.
  @Test func heldMessageIsToldBySentThatStopsAtAHopAbove() {
    let story = scenario(
      [
        [reaction(.next, [.injectOutbound(8)]), reaction(.hold)],
        [reaction(.next, [.injectOutbound(16), .injectOutbound(24)]), reaction(.hold)],
        [reaction(.drop)],
      ],
      [Step(act: .send(63), runs: true), Step(act: .send(64), runs: true)])
    let failure = Play.run(story, isVerbose: true)
    #expect(failure == nil, "\(failure?.what ?? "") \(failure?.trace ?? [])")
  }

  /// Makes a model with two hops. `top` and `bottom` have an element for each message that the hop has in
  /// flight: whether the message's `sent` stops at the hop.
  private func model(_ top: [Bool], _ bottom: [Bool]) -> Model {
    let model = Model(scenario([[], []]), Order(0))
    model.isOpen = true
    for (hop, ledger) in zip(model.hops, [top, bottom]) {
      hop.life = .entered
      hop.ledger = ledger
    }
    return model
  }

  @Test func heldMessageIsToldOnce() {
    let model = model([true, false], [true, true])
    model.arriveSent(1, at: 1)
    #expect(!model.hops[1].tellsHeld())
    model.checkRest(wants: false, deadline: nil)
    #expect(!model.hops[0].tellsHeld())
    model.callerSent(1)
    #expect(model.broken == nil)
    model.callerSent(1)
    #expect(model.broken?.law == "sent")
  }

  /// A `sent` stops at a hop, and in the same step the hop returns HOLD for a message. If that `sent` counted
  /// for the held message, the caller would have been told in this step; so a report in a later step breaks
  /// the law.
  @Test func heldMessageIsNotToldAStepLate() {
    let model = model([false, false], [true, true])
    model.arriveSent(1, at: 1)
    #expect(!model.hops[1].tellsHeld())
    model.checkRest(wants: false, deadline: nil)
    model.callerSent(1)
    #expect(model.broken?.law == "sent")
  }

  /// If a hop returns HOLD for two messages while one `sent` comes, exactly one of them is reported as sent,
  /// whatever the order.
  @Test func oneSentTellsOneHeldMessage() {
    let model = model([false, false], [true, true])
    model.arriveSent(1, at: 1)
    #expect(!model.hops[1].tellsHeld())
    #expect(model.hops[1].tellsHeld())
    model.arriveSent(1, at: 0)
    model.callerSent(1)
    #expect(model.broken == nil)
    model.callerSent(1)
    #expect(model.broken?.law == "sent")
  }
}
