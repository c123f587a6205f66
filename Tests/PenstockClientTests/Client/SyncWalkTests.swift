import PenstockCall
import PenstockLoop
import PenstockTestSupport
import PenstockWire
import Testing

@testable import PenstockClient

/// Takes a synchronous interceptor through all sequences of a few steps of its call, its function and the threads between
/// them. The parts check themselves that each event may come (F1 to F3). This test checks that they fit together: no
/// ticket is lost, the function begins at most once, it never waits for what nobody will tell it, and the hop lets the
/// call go on when the function has no more say.
@Suite(.timeLimit(.minutes(15))) struct SyncWalkTests {
  enum Step: CaseIterable {
    /// The events of the call, as far as their lanes are open. `halfCloseSoon`: the request message of a thread that has
    /// still to half-close.
    case start, message, messageOpen, halfClose, headers, response, status, cancel, demand
    /// A thread runs the function; another takes the offer into the queue.
    case begin, queue
    /// Another thread asks for the end of the call at the hop, with a handle that the function has kept; the same before
    /// the hop's verdict on the event with which it has offered the function; and the driving thread carries that out.
    case endElsewhere, endAtOnce, finish
    /// The steps of the function, or, while it waits in `next`, another function or a callback that runs on its thread.
    /// `next` again is refused or not.
    case next, end, bareAnswer, answer, setMessage, returnNext, returnOther
    /// The driving thread carries out an order; the same, and the call can't begin again; the runtime ends before it.
    case run, runRefused, drop
    /// The thread that waits in `next` looks at the news, or can't wait.
    case look, giveUp
  }

  struct Fault: Error { let words: String }

  /// One interceptor in one call.
  final class Scene {
    enum Wish {
      case next, again, answer(SyncAnswer), end, letGo
    }

    let kind: CallKind
    var stage = SyncStage.fresh
    var function = SyncFunction.beforeNext(SyncFunction.Draft())
    var news = SyncNews.none
    var offer = SyncOffer.early
    var wish: Wish?
    let cell = WaitCell()

    // The call.
    /// The events that have come outbound: 1: start; 2, 3: that many request messages less one; 9: the half-close.
    var sent = 0
    /// The events that have come from below. A hop there may put a message in front of the headers.
    var hasHeaders = false
    var messages = 0
    var hasStatus = false
    var hasHalfClosed = false
    var outboundIsShut = false
    var inboundIsShut = false
    /// Whether start has left the hop, so that a response may come.
    var hasPassed = false
    var isAnswered = false
    var isAsked = false
    var tickets: UInt64 = 0
    /// The tickets of the events that wait at the hop.
    var waiting: Set<UInt64> = []
    /// Another thread has asked for the hop's end. Until then the hop's verdicts do not count: no event that comes shuts its
    /// lane, and none that leaves goes on.
    var isEnding = false
    /// The hop has ended: the call, the hop's own end, or a cancel.
    var isOver = false
    var runtimeHasEnded = false

    // The function.
    var begins = 0
    var isRunning = false
    var hasReturned = false
    /// Whether its thread waits in `next`.
    var isWaiting = false

    init(_ kind: CallKind) { self.kind = kind }

    // MARK: Steps

    /// Takes the step, if it can be taken now. False: it changes nothing.
    func take(_ step: Step) throws -> Bool {
      switch step {
      case .start:
        guard sent == 0, !isOver else { return false }
        sent = 1
        try meet(.start(ticket(.outbound)))
      case .message, .messageOpen:
        guard maySend, sent < 3 else { return false }
        guard step == .message || kind.sendsOne else { return false }
        sent += 1
        if case .collecting = stage { _ = function.edit { $0.message = SyncTableTests.message } }
        try meet(.request(ticket(.outbound), isClosing: step == .messageOpen))
      case .halfClose:
        guard maySend else { return false }
        hasHalfClosed = true
        try meet(.halfClose(ticket(.outbound)))
      case .headers:
        guard mayReceive, !hasHeaders else { return false }
        hasHeaders = true
        try meet(.headers(ticket(.inbound)))
      case .response:
        guard mayReceive, messages < 2 else { return false }
        messages += 1
        if case .passed(let open, let response) = stage, open.message == 0, kind.receivesOne {
          response.message = SyncTableTests.message
        }
        try meet(.message(ticket(.inbound)))
      case .status:
        guard mayReceive else { return false }
        hasStatus = true
        if case .passed(_, let response) = stage { response.status = Status(.unavailable, "") }
        try meet(.status(ticket(.inbound)))
      case .cancel:
        guard !isOver else { return false }
        try endHop(Status(.cancelled, ""))
      case .demand:
        guard !isAsked, sent > 0, !isOver else { return false }
        isAsked = true
        try follow(handle(.demand))
      case .queue:
        guard offer.isReady else { return false }
        _ = offer.handle(.queued(SyncOffer.Links(next: nil, previous: nil)))
      case .begin:
        guard offer.isOpen else { return false }
        _ = offer.handle(.begun)
        begins += 1
        isRunning = true
      case .endElsewhere, .endAtOnce:
        guard begins > 0, !isEnding, !isOver else { return false }
        if step == .endAtOnce {
          guard case .offered = stage else { return false }
          outboundIsShut = false
        }
        isEnding = true
      case .finish:
        guard isEnding, !isOver else { return false }
        try endHop(nil)
      case .next:
        guard isRunning, !hasReturned else { return false }
        let action = function.handle(.next)
        if isWaiting {
          guard case .gives = action else { throw Fault(words: "a next within next does something") }
          return false
        }
        switch action {
        case .next: wait(.next)
        case .again: wait(.again)
        case .refuses, .gives: return false
        default: throw Fault(words: "next does something else")
        }
      case .end:
        // A function below may end the call at this hop while this function waits.
        guard isRunning, !hasReturned, !isOver else { return false }
        switch function.handle(.end) {
        case .end: if !news.isOver { wish = .end }
        case .endElsewhere:
          if isEnding { return false }
          isEnding = true
        case .gives: return false
        default: throw Fault(words: "end does something else")
        }
      case .bareAnswer, .answer:
        guard isRunning, !hasReturned else { return false }
        if step == .answer { _ = function.edit { $0.answers = [SyncTableTests.other] } }
        guard case .answer(let draft) = function.handle(.answer) else { return false }
        if !news.isOver {
          wish = .answer(SyncAnswer(headers: nil, messages: draft.answers, status: SyncTableTests.status))
        }
      case .setMessage:
        guard mayAct, function.message(kind) !== SyncTableTests.other else { return false }
        return function.setMessage(SyncTableTests.other, kind) == nil
      case .returnNext, .returnOther:
        guard mayAct else { return false }
        hasReturned = true
        if news.isOver { return true }
        switch function.handle(.returned(isNext: step == .returnNext)) {
        case .letGo: wish = .letGo
        case .broken: wish = .end
        case .nothing: break
        default: throw Fault(words: "returning does something else")
        }
      case .run, .runRefused:
        guard let wanted = wish, !runtimeHasEnded else { return false }
        if step == .runRefused { guard case .again = wanted else { return false } }
        wish = nil
        try run(wanted, isRefused: step == .runRefused)
      case .drop:
        guard wish != nil, !runtimeHasEnded else { return false }
        wish = nil
        runtimeHasEnded = true
        _ = news.handle(.dropped)
      case .look:
        guard isWaiting, !news.isAwaited else { return false }
        isWaiting = false
        if let response = news.response {
          _ = function.handle(.responded(response))
        } else {
          _ = function.handle(.lost)
        }
      case .giveUp:
        // The runtime has ended.
        guard isWaiting, news.isAwaited, runtimeHasEnded || isOver else { return false }
        _ = news.handle(.givenUp)
      }
      return true
    }

    private var mayAct: Bool { isRunning && !hasReturned && !isWaiting }

    /// Whether an event may come from above, behind start.
    private var maySend: Bool {
      sent > 0 && !hasHalfClosed && !outboundIsShut && !isOver && !runtimeHasEnded
    }

    /// Whether an event may come from below.
    private var mayReceive: Bool {
      hasPassed && !isAnswered && !inboundIsShut && !hasStatus && !isOver && !runtimeHasEnded
    }

    private func ticket(_ lane: Lane) -> UInt64 {
      guard stage.stops(lane) else { return 0 }
      tickets += 1
      return tickets
    }

    private func wait(_ wanted: Wish) {
      isWaiting = true
      if news.isOver { return }
      _ = news.handle(.asked(cell))
      wish = wanted
    }

    private func run(_ wanted: Wish, isRefused: Bool) throws {
      switch wanted {
      case .next:
        guard case .passOn(let open) = handle(.next) else { return try demandOver() }
        hasPassed = !isEnding
        try settle(open)
      case .again:
        switch handle(.again(isRefused: isRefused)) {
        case .restart(let ticket):
          waiting = []
          if ticket == 0 { throw Fault(words: "a restart without a ticket") }
          if !isEnding { (inboundIsShut, hasHeaders, messages, hasStatus) = (false, false, 0, false) }
        case .tell(let response): _ = news.handle(.responded(response))
        default: try demandOver()
        }
      case .answer(let answer): try follow(handle(.answer(answer)))
      case .end: try follow(handle(.end))
      case .letGo: try follow(handle(.letGo))
      }
    }

    private func demandOver() throws {
      if !isOver { throw Fault(words: "an order is lost") }
    }

    private func handle(_ event: SyncStage.Event) -> SyncStage.Action { stage.handle(event, kind) }

    private func meet(_ event: SyncStage.Event) throws {
      let ticket = tickets
      let lane = event.lane
      let stops = stage.stops(lane)
      let action = handle(event)
      switch action {
      case .hold, .offer, .tell:
        if !stops { throw Fault(words: "no ticket") }
        if !isEnding { waiting.insert(ticket) }
      case .pass: break
      default: throw Fault(words: "an event is not answered")
      }
      switch action {
      case .offer:
        outboundIsShut = !isEnding
        _ = offer.handle(.offered)
      case .tell(let response):
        inboundIsShut = !isEnding
        _ = news.handle(.responded(response))
      default: break
      }
    }

    private func follow(_ action: SyncStage.Action) throws {
      switch action {
      case .nothing: break
      case .finish: try endHop(nil)
      case .take(let open, _, let given):
        isAnswered = true
        try settle(open)
        deliver(given)
      case .settle(let open, _, let late):
        inboundIsShut = false
        let end: UInt64 = late == nil ? 0 : open.status
        try settle([open.headers, open.message, open.status].filter { $0 != 0 && $0 != end })
        if let late { deliver(late) }
      case .deliver(let given): deliver(given)
      default: throw Fault(words: "an order is answered like an event")
      }
    }

    /// Delivers the messages if the caller has asked for them.
    private func deliver(_ given: SyncStage.Given) {
      guard isAsked else {
        _ = handle(.left(given))
        return
      }
      _ = handle(.delivered)
      switch given.end {
      case .own: isOver = true
      case .waiting(let ticket): waiting.remove(ticket)
      }
    }

    private func settle(_ open: SyncStage.Outbound) throws {
      outboundIsShut = false
      try settle([open.start, open.request, open.halfClose].filter { $0 != 0 })
    }

    private func settle(_ tickets: [UInt64]) throws {
      for ticket in tickets where waiting.remove(ticket) == nil && !isEnding {
        throw Fault(words: "a ticket is settled twice")
      }
    }

    private func endHop(_ status: Status?) throws {
      isOver = true
      waiting = []
      _ = handle(.gone)
      _ = news.handle(.ended(status))
      _ = offer.handle(.withdrawn)
    }

    // MARK: What has to hold

    func fault() -> String? {
      if begins > 1 { return "the function has begun \(begins) times" }
      if case .over = stage, !news.isOver || offer.isOpen { return "F4: the function goes on" }
      if isOver || isEnding || runtimeHasEnded { return nil }
      if waiting != heldTickets { return "tickets \(waiting) wait, and the stage has \(heldTickets)" }
      if isWaiting, news.isAwaited, wish == nil, stage.name.description != "passed" {
        return "the function waits for nothing"
      }
      let stageIsFree = ["giving", "passing"].contains(stage.name.description)
      if hasReturned, wish == nil, !stageIsFree {
        return "the function has returned, and the hop is \(stage.name)"
      }
      if outboundIsShut, stageIsFree { return "the way out is shut" }
      if inboundIsShut, stage.name.description == "passing" { return "the way in is shut" }
      if offer.isOpen || isRunning, !hasReturned || wish != nil { return nil }
      if sent > 0, hasHalfClosed || !kind.sendsOne, begins == 0 { return "the function is not offered" }
      return nil
    }

    private var heldTickets: Set<UInt64> {
      let all: [UInt64]
      switch stage {
      case .collecting(let open), .closing(let open), .offered(let open):
        all = [open.start, open.request, open.halfClose]
      case .passed(let open, _), .responded(let open, _): all = [open.headers, open.message, open.status]
      case .giving(let given): if case .waiting(let ticket) = given.end { all = [ticket] } else { all = [] }
      case .short, .fresh, .delivering, .passing, .over: all = []
      }
      return Set(all.filter { $0 != 0 })
    }

    /// Everything that decides what later steps do. So two scenes with one description have the same future.
    var description: String {
      let order: String
      if case .answer(let answer) = wish {
        order = "answer \(answer.isBare)"
      } else {
        order = wish.map { String("\($0)".prefix(5)) } ?? "-"
      }
      let held = heldTickets.count
      let response: SyncResponse?
      if case .responded(_, let told) = stage { response = told } else { response = function.response }
      let replaced = function.message(kind) === SyncTableTests.other || response?.replacement != nil
      return """
        \(stage.name) \(function.name) \(news.name) \(offer.name) \(order) \(held) \(replaced) \(sent) \(hasHeaders) \(messages) \
        \(hasStatus) \(isEnding) \
        \(hasHalfClosed) \(outboundIsShut) \(inboundIsShut) \(hasPassed) \(isAnswered) \(isAsked) \(isOver) \
        \(runtimeHasEnded) \(isRunning) \(hasReturned) \(isWaiting) \(response?.message != nil) \(response?.status != nil)
        """
    }
  }

  /// Breadth first, so that each state is found by a shortest sequence. Of sequences that lead to the same state only
  /// one goes on. It ends when no step leads to a new state.
  @Test(arguments: [CallKind.unary, .clientStream, .serverStream, .bidi]) func allSequences(_ kind: CallKind)
  {
    var known: Set<String> = []
    var front: [[Step]] = [[]]
    var names: Set<String> = []
    while !front.isEmpty {
      var next: [[Step]] = []
      for path in front {
        for step in Step.allCases {
          let scene = Scene(kind)
          do {
            for step in path { _ = try scene.take(step) }
            guard try scene.take(step) else { continue }
          } catch {
            Issue.record("\(error): \(path + [step])")
            return
          }
          for name in [scene.stage.name, scene.function.name, scene.news.name, scene.offer.name] {
            names.insert("\(name)")
          }
          if let fault = scene.fault() {
            Issue.record("\(fault): \(path + [step])")
            return
          }
          if known.insert(scene.description).inserted { next.append(path + [step]) }
        }
      }
      front = next
    }
    #expect(known.count > 1000, "\(known.count)")
    let stages: Set = ["offered", "passed", "responded", "passing", "giving", "over"]
    #expect(names.isSuperset(of: stages.union(["beforeNext", "inNext", "afterNext", "gone", "ended"])))
    #expect(names.isSuperset(of: ["none", "awaited", "response", "ready", "queued", "closed"]))
    #expect(names.isSuperset(of: ["collecting", "closing"]) == kind.sendsOne)
  }
}

extension SyncStage.Event {
  fileprivate var lane: Lane {
    switch self {
    case .headers, .message, .status: .inbound
    default: .outbound
    }
  }
}
