import PenstockCall
import PenstockWire

// Performs the planned operations of a hop, in a callback or as another thread would, and compares their
// results with the model's.

extension HopPlayer {
  func expect(_ result: Outcome, _ expected: Outcome, _ what: String) {
    play.log("      hop \(index) \(what): \(result.word)")
    model.require(result == expected, "results", "hop \(index) \(what): \(result.word), not \(expected.word)")
  }

  /// Whether the result `ok` is right for a message or half-close of the hop, although the model expects a
  /// refusal. The call below the hop has ended, so the event would be dropped in any case. The model expects
  /// the refusal because in the model a half-close has passed the hop. In the call that half-close may have
  /// been dropped before it reached the hop.
  private func mayHaveLost(_ result: Outcome, _ mine: Model.Hop) -> Bool {
    result == .ok && mine.halfCloseHasLeft && !mine.hasClosed && model.outboundEnd <= mine.index + 1
  }

  func isGone(_ context: Context?, _ hop: Hop) -> Bool {
    let mine = context?.mine ?? model.hops[place]
    return mine.plan.chosen == nil ? model.isGone(place) : model.seeGone(mine, hop.hasEnded)
  }

  /// Performs an operation of the hop. `context` is the running callback; nil: no callback runs, and another
  /// thread performs the operation.
  func perform(_ operation: Operation, _ hop: Hop, _ context: Context?) {
    guard model.broken == nil else { return }
    let mine = context?.mine ?? model.hops[place]
    let gone = isGone(context, hop)
    switch operation {
    case .change: if let context { change(hop, context) }
    case .injectOutbound(let size):
      if let context { injectOutbound(size, hop, context) } else { putOutbound(size, hop) }
    case .halfClose:
      let expected = model.resultOfHalfClose(mine, isGone: gone)
      let isInline = context.map { !$0.isElsewhere } ?? false
      let result = play.submitting(.hopPuts(mine, Model.Item(.halfClose)), isNested: isInline) {
        hop.halfClose()
      }
      expect(result, mayHaveLost(result, mine) ? .ok : expected, "half-closes")
      if result == .ok { mine.hasAskedToClose = true }
    case .injectInbound(let size): injectInbound(size, hop, context)
    case .demand(let n):
      let result = play.submitting(.hopDemand(mine, n)) { hop.demand(n) }
      expect(result, gone ? .gone : .ok, "demands \(n)")
    case .finish(let code): finish(code, hop, context)
    case .setCount(let n): if context?.kind == .demand { expect(hop.setSignalCount(n), .ok, "count") }
    case .setDeadline(let ms):
      guard let context else { break }
      let result = hop.setDeadline(play.loop.now + UInt64(ms) * 1_000_000)
      expect(result, gone ? .gone : context.kind == .start ? .ok : .state, "sets a deadline")
      guard result == .ok else { break }
      let time = play.loop.now + UInt64(ms) * 1_000_000
      if context.isElsewhere { context.deadline = time } else { model.expectedDeadline = time }
    case .resolveEarly(let end):
      guard let context else { break }
      let isFirst = context.ticket == 0
      let ticket = hop.takeTicket()
      guard ticket != 0 else { break }
      context.ticket = ticket
      if isFirst { model.issued(ticket, context.kind, mine) }
      play.use(ticket, end)
    case .changeStart:
      guard let context, context.kind == .status else { break }
      let recorded = context.job?.hasStart ?? model.hasRecordedStart(mine)
      model.require(
        (hop.requestMetadata != nil) == recorded, "restart",
        "\(mine.name): the recorded start is there: \(!recorded)")
      if let metadata = hop.requestMetadata {
        mark(metadata)
        mine.recordedStart?.marks.append(index)
      }
      if recorded, mine.unreplayable == nil { replaceRecord(hop, mine, isGone: gone && context.isElsewhere) }
    case .setStartDeadline(let ms):
      guard let context, context.kind == .status else { break }
      let recorded = context.job?.hasStart ?? model.hasRecordedStart(mine)
      let result = hop.setDeadline(play.loop.now + UInt64(ms) * 1_000_000)
      expect(
        result, context.isElsewhere && gone ? .gone : recorded ? .ok : .state, "sets the recorded deadline")
      if result == .ok { mine.recordedStart?.deadline = play.loop.now + UInt64(ms) * 1_000_000 }
    case .redirect(let channel): if let context { redirect(channel, hop, context) }
    case .turn: if context?.isElsewhere == true, !play.loop.isDriving { play.turn() }
    case .deliverHeaders:
      let isOpen = mine.mayDeliver && !mine.messageDelivered && !mine.statusDelivered
      let expected: Outcome =
        gone ? .gone : !mine.mayDeliver ? .state : mine.headersDelivered ? .already : isOpen ? .ok : .state
      let result = play.submitting(.answer(mine, Model.Item(.headers))) { hop.deliverHeaders(Metadata()) }
      expect(result, expected, "delivers headers")
      if result == .ok { mine.headersDelivered = true }
    case .deliverStatus(let code):
      let expected: Outcome =
        gone ? .gone : !mine.mayDeliver ? .state : mine.statusDelivered ? .already : .ok
      let item = play.status(code)
      let result = play.submitting(.answer(mine, item)) { hop.deliverStatus(play.statusObject(item)) }
      expect(result, expected, "delivers status \(item.id)")
      if result == .ok { mine.statusDelivered = true }
    }
  }

  /// Replaces each recorded message by its equal. A RESTART then sends what it would have sent anyway.
  private func replaceRecord(_ hop: Hop, _ mine: Model.Hop, isGone: Bool) {
    let count = mine.recorded.filter { $0.kind == .send }.count
    let result = hop.editRecord { cut in
      for index in 0..<count {
        guard var equal = cut.message(at: index)?.fitting(hop.codec) else { return .notFound }
        let replaced = cut.exchangeMessage(at: index, with: &equal)
        guard replaced == .ok else { return replaced }
      }
      return cut.message(at: count) == nil ? .ok : .already
    }
    expect(result, isGone ? .gone : .ok, "replaces \(count) recorded messages")
  }

  /// Redirects the call to another channel: in on_start by a change of the request, in on_status by a change
  /// of the request that a RESTART sends.
  private func redirect(_ channel: Int, _ hop: Hop, _ context: Context) {
    let recorded = context.kind == .status && (context.job?.hasStart ?? model.hasRecordedStart(context.mine))
    let isAllowed = context.kind == .start || recorded
    let result = hop.editStart {
      $0.setRoute(play.route(channel))
      return .ok
    }
    let isLate = context.isElsewhere && isGone(context, hop)
    expect(result, isLate ? .gone : isAllowed ? .ok : .state, "redirects to channel \(channel)")
    guard result == .ok else { return }
    let target = text(ByteView(rebasing: hop.target.view.dropLast()))
    model.require(target == "t\(channel)", "redirect", "the target is \(target)")
    if context.kind == .status {
      context.mine.recordedStart?.channel = channel
    } else if context.isElsewhere {
      context.channel = channel
    } else {
      model.requestChannel = channel
    }
  }

  /// Sends a message of the hop as another thread would, outside of the hop's callbacks.
  private func putOutbound(_ size: Int, _ hop: Hop) {
    let mine = model.hops[place]
    let expected = model.resultOfInjectOutbound(mine, isGone: isGone(nil, hop), isElsewhere: true)
    let item = Model.Item(.send, id: play.identity(size), size: size)
    item.isObject = model.isObject(at: place)
    let message = play.message(item)
    let result = play.submitting(.hopPuts(mine, item)) { hop.injectOutbound(message) }
    expect(result, mayHaveLost(result, mine) ? .ok : expected, "sends message \(item.id)")
  }

  private func finish(_ code: Int32, _ hop: Hop, _ context: Context?) {
    let item = play.status(code)
    guard context != nil else {
      let mine = model.hops[place]
      let gone = isGone(nil, hop)
      let result = play.submitting(.hopPuts(mine, item)) { hop.finish(play.statusObject(item)) }
      if gone { return expect(result, .gone, "finishes with \(code)") }
      play.log("      hop \(index) finishes with \(code): \(result.word)")
      return model.ended(mine, code: code, result)
    }
    if let context, context.mine.isTaken, code == 0, context.kind != .cancel,
      context.job?.item.isLocal != true,
      context.isElsewhere || hop.status?.isLocal != true
    {
      // Whether the hop's part in the call is over, although its callback still runs.
      let isLate = !context.isElsewhere && !context.mine.isActive
      let expected: Outcome = isGone(context, hop) ? .gone : isLate ? .state : .ok
      let result = play.submitting(.hopPuts(context.mine, item)) { hop.finish(play.statusObject(item)) }
      return expect(result, expected, "finishes with OK")
    }
    let result = hop.finish(play.statusObject(item))
    let gone = isGone(context, hop)
    guard let context else { return }
    let isTold = context.kind == .cancel || context.job?.item.isLocal ?? hop.status?.isLocal == true
    let isLate = !context.isElsewhere && !context.mine.isActive
    if gone || isTold || isLate {
      let isOver = gone && (context.isElsewhere || isLate)
      expect(result, isOver ? .gone : .state, "finishes with \(code)")
    } else {
      play.log("      hop \(index) finishes with \(code): \(result.word)")
      model.ended(context.mine, code: code, result)
    }
    if result == .ok { context.finishing = item }
  }

  private func injectOutbound(_ size: Int, _ hop: Hop, _ context: Context) {
    let expected = model.resultOfInjectOutbound(
      context.mine, isGone: isGone(context, hop), isElsewhere: context.isElsewhere)
    let item = Model.Item(.send, id: play.identity(size), size: size)
    if play.codec != nil {
      item.isObject = !model.isObject(at: place)
      let result = hop.injectOutbound(play.message(item))
      model.require(
        result == .state || result == .gone, "levels", "hop \(index) sends across levels: \(result.word)")
    }
    item.isObject = model.isObject(at: place)
    let result = hop.injectOutbound(play.message(item))
    let isLost = context.isElsewhere && mayHaveLost(result, context.mine)
    expect(result, isLost ? .ok : expected, "sends message \(item.id)")
    guard result == .ok else { return }
    if context.isElsewhere { context.injected.append(item) } else { model.injectOutbound(place, item) }
  }

  private func injectInbound(_ size: Int, _ hop: Hop, _ context: Context?) {
    let mine = context?.mine ?? model.hops[place]
    guard context != nil || kept != nil else { return }
    let isVisit = context?.isElsewhere == true
    let item = Model.Item(.receive, id: play.identity(size), size: size)
    item.isObject = model.isObject(at: place)
    let expected = model.resultOfInjectInbound(
      mine, item, isGone: isGone(context, hop), isElsewhere: isVisit)
    let isAnswer = mine.mayDeliver
    let isInVisit = isVisit && !isAnswer
    let isPosted = isAnswer || (!isInVisit && !play.loop.isDriving)
    let message = play.message(item)
    let input: Model.Input = isAnswer ? .answer(mine, item) : .hopPuts(mine, item)
    let result =
      isPosted ? play.submitting(input) { hop.injectInbound(message) } : hop.injectInbound(message)
    // On another thread the hop may not know yet that its part is over, although the model has ended it: then
    // either result is right.
    let isRace = !isInVisit && !play.loop.isDriving && expected == .state && !mine.statusDelivered
    if isRace, result == .ok { model.injectInbound(mine, item, isPosted: true) }
    if !isRace { expect(result, expected, "delivers message \(item.id)") }
    if result == .ok {
      mine.hasRefusal = false
    } else if mine.mayDeliver, !mine.statusDelivered {
      mine.hasRefusal = true
    }
    guard result == .ok, expected == .ok else { return }
    if isInVisit, let context {
      mine.reserved += 1
      context.injected.append(item)
    } else {
      model.injectInbound(mine, item, isPosted: isPosted)
    }
  }

  private func change(_ hop: Hop, _ context: Context) {
    switch context.kind {
    case .start:
      mark(hop.metadata!)
      if context.isElsewhere { context.marks.append(index) } else { model.requestMarks.append(index) }
    case .headers:
      mark(hop.metadata!)
      context.item?.marks.append(index)
    case .status:
      let status = hop.status!
      guard !status.isLocal else { return }
      mark(status.trailers)
      status.setCode(StatusCode(rawValue: (status.code.rawValue + 1) % 17)!)
      context.item?.marks.append(index)
      if let item = context.item { item.code = (item.code + 1) % 17 }
      context.item?.canRepeat = false
    case .send, .receive:
      let message = hop.message!
      let old = play.item(context.kind, message)
      let size = old.size == 0 ? 8 : old.size - 1
      let item = Model.Item(.send, id: play.identity(size), size: size)
      // A message has its id in its first eight bytes, so a smaller one has no id.
      let fresh = play.bytes(item)
      if old.isObject {
        let wrong: Outcome = context.isElsewhere && isGone(context, hop) ? .gone : .state
        expect(hop.setMessage(fresh), wrong, "puts bytes in an object's place")
        let thing = Thing(item.id, size, play.things)
        let another = message.codecObject!.another(Unmanaged.passRetained(thing).toOpaque())
        expect(hop.setMessage(ByteBuffer(object: another)), .ok, "replaces the object by \(item.id)")
      } else {
        expect(hop.setMessage(fresh), .ok, "replaces the message by \(item.id)")
      }
      context.item?.id = item.id
      context.item?.size = size
    case .none, .halfClose, .cancel, .demand, .sent, .create, .destroy, .pick: break
    }
  }

  private func mark(_ metadata: Metadata) {
    _ = with("\(index)") { metadata.add(("mark" as StaticString).bytes, $0) }
  }
}
