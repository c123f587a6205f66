import PenstockWire
import Synchronization

// The functions by which a callback uses its hop. Unless a comment says otherwise, a function works only on a
// thread that runs a callback of the hop. Each function checks that itself, because the ABI layer does not.

extension Hop {
  /// Turns a pointer that `handle` has made back into the hop. It is the only function that does so.
  public static func from(_ handle: OpaquePointer) -> Hop {
    let hop = Unmanaged<Hop>.fromOpaque(UnsafeRawPointer(handle)).takeUnretainedValue()
    hop.row.wasLookedAt.store(true, ordering: .relaxed)
    return hop
  }

  /// Whether the hop can do nothing in the call any more. Any thread.
  public var hasEnded: Bool { isOver }

  /// Whether this process is a forked child of the process that made the call. Any thread.
  public var isForked: Bool { call.loop.isForked }

  /// The event of the callback that runs on the calling thread.
  public var currentEvent: EventKind {
    if isInline { return current }
    return job?.kind ?? .none
  }

  /// Whether the calling thread is the driving thread and runs a callback of the hop.
  private var isInline: Bool { call.isDriving && current != .none }

  private var currentValue: Event { isInline ? call.event : job?.event ?? .start }

  func check() -> Outcome {
    if hasEnded { return currentEvent == .destroy ? refuse(.inDestroy) : .gone }
    return currentEvent == .none ? refuse(.outsideCallback) : .ok
  }

  public var metadata: Metadata? {
    switch currentEvent {
    case .create, .start, .pick: return requestMetadata
    case .headers, .status, .cancel:
      switch currentValue {
      case .headers(let headers): return headers
      case .status(let status): return status.trailers
      case .start, .send, .halfClose, .receive: return nil
      }
    case .none, .send, .halfClose, .receive, .demand, .sent, .destroy: return nil
    }
  }

  public var message: Message? {
    switch currentEvent {
    case .send, .receive: currentValue.message
    case .none, .start, .halfClose, .headers, .status, .cancel, .demand, .sent, .create, .destroy, .pick: nil
    }
  }

  /// Whether messages are objects at this hop, and not bytes.
  public var seesObjects: Bool { codec != nil }

  /// The codec of the objects in this hop's messages; nil: the messages are bytes. Any thread.
  public var codec: Codec? { level == .object ? call.codec : nil }

  /// Replaces the contents of the message by those of `fresh`, to which nobody else has a reference.
  public func setMessage(_ fresh: Message) -> Outcome {
    guard fresh.isObject == seesObjects, let message else { return noMessage(of: fresh.isObject) }
    message.exchange(with: fresh)
    return .ok
  }

  /// The error of a function that finds no message to use. `objects`: the function works on objects, and not
  /// on bytes.
  public func noMessage(of objects: Bool) -> Outcome {
    let outcome = check()
    guard outcome == .ok else { return outcome }
    return seesObjects == objects ? refuse(.noMessage) : refuseForm()
  }

  /// The error for an object where messages are bytes, or for bytes where messages are objects.
  public func refuseForm() -> Outcome { refuse(seesObjects ? .takesObjects : .takesBytes) }

  public var status: Status? {
    let kind = currentEvent
    guard kind == .status || kind == .cancel, case .status(let status) = currentValue else { return nil }
    return status
  }

  public var signalCount: Int {
    if isInline { return current == .demand || current == .sent ? count : 0 }
    return job?.count ?? 0
  }

  public func setSignalCount(_ n: Int) -> Outcome {
    guard currentEvent == .demand else { return wrongPlace(.demandOnly) }
    if isInline { count = n } else { job?.count = n }
    return .ok
  }

  /// The error of a function that was called in the wrong callback: E_GONE after the hop's end, otherwise
  /// (and in `destroy`) E_STATE.
  private func wrongPlace(_ why: Refusal) -> Outcome {
    let outcome = check()
    return outcome == .ok ? refuse(why) : outcome
  }

  // MARK: - The start

  /// Calls `edit` with the request that may be changed now. In on_start this is the call's request; in
  /// on_status it is the recorded request, which a RESTART sends.
  public func editStart(_ edit: (Request) -> Outcome) -> Outcome {
    let outcome = check()
    guard outcome == .ok else { return outcome }
    switch currentEvent {
    case .start, .status: return editedStart.map { edit($0) } ?? refuse(whyNoStart(status))
    case .none, .create, .send, .halfClose, .headers, .receive, .cancel, .demand, .sent, .destroy, .pick:
      return refuse(.startOrStatusOnly)
    }
  }

  /// The error of a function that reads the request where the hop does not show it.
  public func refuseRead() -> Outcome {
    let outcome = check()
    return outcome == .ok ? refuse(.outsideCallback) : outcome
  }

  /// Calls `edit` with the record of the messages that a RESTART sends. Only in on_status.
  public func editRecord(_ edit: (Cut) -> Outcome) -> Outcome {
    let outcome = check()
    guard outcome == .ok else { return outcome }
    guard currentEvent == .status else { return refuse(.statusOnly) }
    return editRecord(editedStart, status, edit)
  }

  /// Calls `edit` with the record of the messages, while `status` waits at the hop. `start`: the recorded
  /// request. Any thread.
  public func editRecord(_ start: Request?, _ status: Status?, _ edit: (Cut) -> Outcome) -> Outcome {
    guard start != nil, let cut else { return refuse(whyNoStart(status)) }
    return edit(cut)
  }

  /// Why there is no recorded request that a RESTART could send again when the hop sees `status`. Any thread.
  public func whyNoStart(_ status: Status?) -> Refusal {
    status?.isLocal == true ? .isLocal : records ? .recordGone : .notRecorded
  }

  /// The request's metadata, in the callbacks that may see it: create, on_start and on_pick. In on_status of
  /// a hop that may RESTART it is the metadata that a RESTART sends.
  public var requestMetadata: Metadata? {
    switch currentEvent {
    case .create, .pick: call.request.metadata
    case .start, .status: editedStart?.metadata
    case .none, .send, .halfClose, .headers, .receive, .cancel, .demand, .sent, .destroy: nil
    }
  }

  /// The request that may be changed now: in on_start the call's request, in on_status the recorded one.
  public var editedStart: Request? {
    if isInline { return current == .start ? call.request : current == .status ? cut?.start : nil }
    return job?.start
  }

  /// Reads a part of the request as the callback sees it: from the request that it may change, else (on an
  /// executor) from the job's copy, else from the call's request. Other threads may read nothing of the
  /// call's request but its route.
  @inline(__always)
  func shown<T>(_ part: (Request) -> T, kept: (Job) -> T) -> T {
    if let editedStart { return part(editedStart) }
    if let job { return kept(job) }
    return part(call.request)
  }

  /// The path "/service/method", followed by a NUL.
  public var path: ByteBuffer { shown({ $0.path }, kept: { $0.path }) }

  /// `.ok` if the callback, on_status, may return RESTART; otherwise the reason why not.
  public var canRestart: Outcome {
    if hasEnded { return .gone }
    guard currentEvent == .status, let status else { return refuse(.statusOnly) }
    let outcome = isInline ? mayRestart(status) : job?.canRestart ?? .state
    return outcome == .state ? refuse(whyNoStart(status)) : outcome
  }

  /// The target and the default authority of the call's channel, or of the channel to which the call was
  /// redirected. Both end with a NUL. Any thread.
  public var target: ByteBuffer { route?.target ?? call.origin.target }
  public var defaultAuthority: ByteBuffer { route?.authority ?? call.origin.defaultAuthority }
  /// How private the call's channel is; in on_status, the channel of the last attempt.
  public var privacy: Privacy { lastRoute?.privacy ?? call.origin.privacy }
  /// The protocol of the call's channel; in on_status, that of the last attempt's channel.
  public var rpc: RPCProtocol { lastRoute?.rpc ?? call.origin.rpc }
  /// "GET" or "POST", as far as it is known at the callback.
  public var httpMethod: StaticString {
    let method = (route?.rpc ?? call.origin.rpc).httpMethod(call.request.kind, settings)
    return currentEvent == .send && method.utf8CodeUnitCount == 3 && !fitsInURL ? "POST" : method
  }

  /// Whether the message that the hop sees fits into the URL of a GET. Also true if that is not known: the
  /// message is an object, or may become shorter by compression.
  private var fitsInURL: Bool {
    guard !seesObjects, let message,
      settings.compression == .identity || message.staysPlain || settings.compressionUse.skips(message.count)
    else { return true }
    let most = route?.mostQueryBytes ?? call.origin.mostQueryBytes
    // `path` ends with a NUL.
    let outcome = ConnectQuery.write(
      message.view, encoding: labels?.subtype, compression: .identity, most: most - (path.count - 1),
      into: ByteBuffer())
    if case .tooLong = outcome { return false }
    return true
  }

  private var lastRoute: CallRoute? { currentEvent == .status ? call.request.route : route }
  private var route: CallRoute? { shown({ $0.route }, kept: { $0.route }) }

  /// The clock by which deadlines are counted. Any thread.
  public var clock: UInt64 { call.clock }

  public var deadline: UInt64? { shown({ $0.deadline }, kept: { $0.deadline }) }

  /// Sets the deadline, in monotonic nanoseconds; nil: none.
  public func setDeadline(_ time: UInt64?) -> Outcome {
    editStart { start in
      start.deadline = time
      if start === call.request { call.loop.setDeadline(call, time) }
      return .ok
    }
  }

  // MARK: - Ending, injecting, answering

  /// Ends the call with `status`. In a callback of the hop, the callback's verdict is then ignored.
  /// Elsewhere, on any thread, the call ends soon; meanwhile no verdict of the hop counts, and no status leaves
  /// it.
  public func finish(_ status: Status) -> Outcome {
    if hasEnded { return check() }
    if currentEvent == .none {
      guard mayAct else { return inOtherState(.startNotCome) }
      return endSoon(status)
    }
    let job = isInline ? nil : job
    switch job?.kind ?? current {
    case .create, .destroy, .cancel, .none: return refuse(.isToldOnly)
    case .status where self.status?.isLocal == true: return refuse(.isLocal)
    case .start, .send, .halfClose, .headers, .receive, .status, .demand, .sent, .pick:
      if seen == .answering, status.code == .ok {
        // The status waits behind the messages that the hop has delivered as its answer.
        return job != nil || isActive ? submit(.finish(self, status)) : refuse(.isToldOnly)
      }
      if job == nil {
        call.splitRun(at: index)
        guard isActive else { return refuse(.isToldOnly) }
      }
      let outcome = claimEnd()
      guard outcome == .ok else { return outcome }
      if let job { job.finishRequest = status } else { finishRequest = status }
      return .ok
    }
  }

  /// Ends the call with `status` outside of the hop's callbacks, or by the ticket of an event whose callback may
  /// still run. Any thread.
  public func endSoon(_ status: Status, ticket: UInt64 = 0) -> Outcome {
    // An OK may have to wait behind the messages of the hop's own answer, so it decides nothing yet.
    if seen != .answering || status.code != .ok {
      let outcome = claimEnd()
      guard outcome == .ok else { return outcome }
    }
    return submit(.finish(self, status, ticket: ticket))
  }

  private func submit(_ input: Call.Input) -> Outcome {
    call.submit(input)
    return .ok
  }

  /// Whether start has come to the hop, so that the hop may end the call outside of callbacks. Any thread.
  private var mayAct: Bool {
    switch seen {
    case .mayAnswer, .open, .halfClosed, .answering: true
    case .asRun, .waiting, .over: false
    }
  }

  /// Half-closes toward the server, on any thread. The half-close leaves the hop behind the events that wait
  /// there and the event of the running callback. Later events from above are dropped at the hop.
  public func halfClose() -> Outcome {
    if hasEnded { return .gone }
    if call.isDriving { call.splitRun(at: index) }
    switch seen {
    case .open:
      guard noteHalfClose() else { return .already }
      guard isInline else { return submit(.put(self, .halfClose)) }
      // The half-close comes before the inputs that other threads have posted, because `perform` does not
      // post it.
      call.perform(.put(self, .halfClose))
      return .ok
    case .halfClosed: return .already
    case .asRun, .waiting, .mayAnswer, .answering, .over: return inOtherState(notBelow)
    }
  }

  /// The error of a function that finds the hop in a state that doesn't allow it. Where the call has ended on the driving
  /// thread since the function's first check, that is the reason.
  private func inOtherState(_ why: Refusal) -> Outcome { hasEnded ? .gone : refuse(why) }

  /// Why the hop can't send an event of its own toward the server. Any thread.
  private var notBelow: Refusal {
    switch seen {
    case .answering: .hasTaken
    case .halfClosed: .hasHalfClosed
    case .asRun, .waiting, .mayAnswer, .open, .over: .startNotPassed
    }
  }

  /// Sends a message that the hop has made to the server, on any thread. If no callback of the hop runs on
  /// that thread, the message leaves soon, unless the hop's part in the call is over by then.
  public func injectOutbound(_ message: Message) -> Outcome {
    if hasEnded { return .gone }
    guard message.isObject == seesObjects else { return refuseForm() }
    if call.isDriving { call.splitRun(at: index) }
    guard seen == .open else { return inOtherState(notBelow) }
    if let job = isInline ? nil : job {
      job.injected.append(.send(message))
      return .ok
    }
    guard call.isDriving else { return submit(.put(self, .send(message))) }
    guard isActive, call.phase == .live else { return refuse(.isToldOnly) }
    station(.outbound).inject(.send(message))
    call.flushSoon(index, .outbound)
    return .ok
  }

  /// Delivers a message that the hop has made upward, on the driving thread, or after `share` on any thread.
  /// If the hop answers the call itself, the message becomes an input of the call on every thread, so that
  /// the hop's events keep their order. In that case messages that were not asked for yet wait at the hop, up
  /// to hold_bytes.
  public func injectInbound(_ message: Message) -> Outcome {
    let outcome = putInbound(message)
    if outcome == .ok {
      if hasRefused { deed.store(Deed.none.rawValue, ordering: .releasing) }
    } else if mayDeliver, !answered.hasEnded {
      deed.store(Deed.refused.rawValue, ordering: .releasing)
    }
    return outcome
  }

  private func putInbound(_ message: Message) -> Outcome {
    if hasEnded { return .gone }
    guard message.isObject == seesObjects else { return refuseForm() }
    let job = isInline ? nil : job
    if job == nil, call.isDriving {
      call.splitRun(at: index)
      guard isActive, call.phase == .live else { return refuse(isEntered ? .isToldOnly : .startNotCome) }
    }
    switch seen {
    case .mayAnswer, .answering:
      guard !answered.hasEnded else { return refuse(.hasDeliveredStatus) }
      guard takeRoom(message) else { return .wouldBlock }
      _ = noteDelivered(.receive)
      return submit(.answer(self, .receive(message)))
    case .open, .halfClosed: break
    case .asRun, .waiting, .over: return inOtherState(.startNotCome)
    }
    if let job {
      guard spendShared() else { return .wouldBlock }
      job.injected.append(.receive(message))
      return .ok
    }
    guard call.isDriving else { return spendShared() ? submit(.put(self, .receive(message))) : .wouldBlock }
    guard isShared ? spendShared() : owed > reserved else { return .wouldBlock }
    reserved += 1
    station(.inbound).inject(.receive(message))
    call.flushSoon(index, .inbound)
    return .ok
  }

  private func spendShared() -> Bool {
    var seen = sharedOwed.load(ordering: .acquiring)
    while seen > 0 {
      let (done, now) = sharedOwed.weakCompareExchange(
        expected: seen, desired: seen - 1, ordering: .acquiringAndReleasing)
      if done { return true }
      seen = now
    }
    return false
  }

  /// Delivers the headers of the hop's own answer, on any thread. The hop must have returned TAKE for start,
  /// or still be able to.
  public func deliverHeaders(_ headers: Metadata) -> Outcome {
    if hasEnded { return .gone }
    if call.isDriving { call.splitRun(at: index) }
    guard mayDeliver else { return inOtherState(notAnswering) }
    let outcome = noteDelivered(.headers)
    guard outcome == .ok else {
      return outcome == .state ? refuse(answered.hasEnded ? .hasDeliveredStatus : .headersLate) : outcome
    }
    call.submit(.answer(self, .headers(headers)))
    return .ok
  }

  /// Delivers the status of the hop's own answer, on any thread. The hop must have returned TAKE for start,
  /// or still be able to.
  public func deliverStatus(_ status: Status) -> Outcome {
    if hasEnded { return .gone }
    if call.isDriving { call.splitRun(at: index) }
    guard mayDeliver else { return inOtherState(notAnswering) }
    let outcome = noteDelivered(.status)
    guard outcome == .ok else { return outcome }
    call.submit(.answer(self, .status(status)))
    return .ok
  }

  /// Why the hop can't answer the call itself. Any thread.
  private var notAnswering: Refusal { seen == .open || seen == .halfClosed ? .startHasPassed : .startNotCome }

  /// Asks for `n` more messages from the server's side. Any thread.
  public func demand(_ n: Int) -> Outcome {
    if hasEnded { return .gone }
    call.submit(.demandBelow(self, n))
    return .ok
  }

  // MARK: - Values, tickets

  public func setValue(_ key: ByteView, _ value: UserData?) -> Outcome {
    let outcome = check()
    guard outcome == .ok || currentEvent == .destroy else { return outcome }
    return call.values.set(key, value) ? .ok : .noMemory
  }

  public func value(_ key: ByteView) -> UnsafeMutableRawPointer? {
    currentEvent == .none ? nil : call.knownValues?.get(key)
  }

  /// The pointer that the program has given to the call; nil outside a callback.
  public var context: UnsafeMutableRawPointer? { currentEvent == .none ? nil : call.contextPointer }

  /// Takes a ticket for the callback's event. Returns 0 if the event can't be paused, or if there are no more
  /// tickets.
  public func takeTicket() -> UInt64 {
    if let job = isInline ? nil : job {
      guard job.ticket == 0, !hasEnded, self.status?.isLocal != true,
        job.kind.rawValue <= EventKind.status.rawValue
      else { return job.ticket }
      if job.isAwaited { job.ticket = issueTicket(job.event, job.start) }
      return job.ticket
    }
    guard call.isDriving, call.phase == .live else { return 0 }
    switch current {
    case .start, .send, .halfClose, .headers, .receive, .status: break
    case .none, .cancel, .demand, .sent, .create, .destroy, .pick: return 0
    }
    // With the ticket, any thread can get a handle of the hop.
    share()
    if ticket == 0 { ticket = issueTicket(call.event, editedStart) }
    return ticket
  }

  private func issueTicket(_ event: Event, _ start: Request?) -> UInt64 {
    call.withLoop { $0.issueTicket(event, of: self, start: start) }
  }

  /// Sets the executors for the outbound and the inbound lane; nil: the driving thread. Only in `create`.
  public func chooseExecutors(_ outbound: (any Executor)?, _ inbound: (any Executor)?) -> Outcome {
    guard call.isDriving, life == .creating else { return wrongPlace(.createOnly) }
    choose(outbound, inbound)
    return .ok
  }

  /// Notes that a user keeps the handle, so that any thread may deliver and demand with it.
  public func becomeShared() {
    guard call.isDriving else { return }
    lend()
    share()
  }
}

extension Call {
  /// Lets injected events leave the hop at `index`: after the running step, or now if no step runs.
  func flushSoon(_ index: Int, _ lane: Lane) {
    if isRunning { pending.append(.flush(index, lane)) } else { perform(.flush(index, lane)) }
  }
}
