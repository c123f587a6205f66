import PenstockCall
import PenstockWire
import PenstockHTTP
import PenstockTransport

// For a chain, a synchronous interceptor is an ordinary interceptor with the callbacks of this file. They
// stop the events that the user's function should see. All code of this file runs on the driving thread.

extension SyncInterceptor {
  /// Every table of this style has this callback, and is recognised by it, as with `AsyncState`.
  public static let destroy: HopDestroy = { destroyHop($0, $1) }

  /// The callbacks of a synchronous interceptor, for its registration. The registration's user data must be a
  /// reference to the `SyncInterceptor`, because `createHop` reads it.
  public static func callbacks() -> Registration.Callbacks {
    var callbacks = Registration.Callbacks()
    callbacks.create = createHop
    callbacks.destroy = destroy
    callbacks.onStart = { handle, state in with(handle, state) { $0.startCame($1) } }
    callbacks.onSend = { handle, state in with(handle, state) { $0.requestCame($1, $1.message) } }
    callbacks.onHalfClose = { handle, state in with(handle, state) { $0.requestCame($1, nil) } }
    callbacks.onHeaders = { handle, state in with(handle, state) { $0.headersCame($1) } }
    callbacks.onReceive = { handle, state in with(handle, state) { $0.messageCame($1) } }
    callbacks.onStatus = { handle, state in with(handle, state) { $0.statusCame($1) } }
    callbacks.onCancel = { handle, state in
      with(handle, state) { call, hop in
        call.end(hop.status)
        return .next
      }
    }
    callbacks.onDemand = { handle, state in
      with(handle, state) { call, hop in
        call.pump(hop)
        return .next
      }
    }
    return callbacks
  }
}

private func createHop(
  _ handle: OpaquePointer?, _ userData: UnsafeMutableRawPointer?,
  _ state: UnsafeMutablePointer<UnsafeMutableRawPointer?>?
) -> Int32 {
  guard let handle, let userData, let state else { return Verdict.skip.rawValue }
  let interceptor = Unmanaged<SyncInterceptor>.fromOpaque(userData).takeUnretainedValue()
  let call = InterceptedCall(Hop.from(handle), interceptor)
  // The hop owns this reference; `destroyHop` releases it.
  state.pointee = Unmanaged.passRetained(call).toOpaque()
  return Verdict.next.rawValue
}

private func destroyHop(_ handle: OpaquePointer?, _ state: UnsafeMutableRawPointer?) {
  guard let state else { return }
  let call = Unmanaged<InterceptedCall>.fromOpaque(state).takeRetainedValue()
  call.end(nil)
}

private func with(
  _ handle: OpaquePointer?, _ state: UnsafeMutableRawPointer?, _ body: (InterceptedCall, Hop) -> Verdict
) -> Int32 {
  guard let handle, let state else { return Verdict.next.rawValue }
  return body(Unmanaged<InterceptedCall>.fromOpaque(state).takeUnretainedValue(), Hop.from(handle)).rawValue
}

extension InterceptedCall {
  /// Takes a ticket for the present event. Returns 0 if there is no memory for a ticket. The call is ended
  /// then.
  private func takeTicket(_ hop: Hop) -> UInt64 {
    let ticket = hop.takeTicket()
    if ticket == 0 { _ = hop.finish(Status(.resourceExhausted, "no memory for a synchronous interceptor")) }
    return ticket
  }

  // MARK: - On the way out

  fileprivate func startCame(_ hop: Hop) -> Verdict {
    if isShort {
      _ = hop.finish(Status(.resourceExhausted, "no memory for a synchronous interceptor"))
      return .next
    }
    tickets.start = takeTicket(hop)
    guard tickets.start != 0 else { return .next }
    hop.becomeShared()
    // A call with only one request message shows the start and the message to the function together. So the
    // start is held until the message arrives.
    if kind.sendsOne { return .hold }
    offer(hop)
    return .pause
  }

  /// Called when the request message or the half-close (nil) has arrived at the hop. In blocking style the thread
  /// that will wait for the response half-closes the call, unless the user does so before: until then nobody knows
  /// on which thread the function has to run.
  fileprivate func requestCame(_ hop: Hop, _ message: Message?) -> Verdict {
    guard stage == .collecting else { return .next }
    let ticket = takeTicket(hop)
    guard ticket != 0 else { return .next }
    if tickets.request == 0 { tickets.request = ticket } else { tickets.halfClose = ticket }
    if let message {
      request = message
      if ClientCall.of(hop)?.closesByWaiting == true { return .hold }
    }
    offer(hop)
    return .pause
  }

  private func offer(_ hop: Hop) {
    stage = .offered
    if !pool.offer(self) {
      _ = hop.finish(InterceptedCall.noThread)
    }
  }

  /// Called when the function has called `next` for the first time. Passes the start on, with the function's
  /// changes.
  func passStart(_ hop: Hop) {
    guard stage == .offered else { return }
    stage = .passed
    let call = hop.call
    if isChanged, !call.request.become(start) {
      stage = .offered
      finish(Status(.resourceExhausted, "no memory for a synchronous interceptor"), hop)
      return
    }
    let late = request == nil ? newRequest : nil
    if let request, let newRequest { request.exchange(with: newRequest) }
    let open = tickets
    call.settle(open.start, .next)
    if let late { _ = hop.injectOutbound(late) }
    call.settle(open.request, .next)
    call.settle(open.halfClose, .next)
  }

  /// Called when the function has called `next` after a status. The call begins again below the hop, and the
  /// response that waits at the hop is dropped.
  func startAgain(_ hop: Hop) {
    guard stage == .responded, let status else { return }
    refusedAgain = hop.prepareRestart(status, sending: isChanged ? start : nil)
    if refusedAgain != nil { return respond() }
    let ticket = tickets.status
    stage = .passed
    tickets = OpenTickets()
    if let headers { shownBefore.append(headers) }
    shownBefore.append(status)
    headers = nil
    response = nil
    newResponse = nil
    self.status = nil
    hop.call.settle(ticket, .restart)
  }

  // MARK: - On the way in

  fileprivate func headersCame(_ hop: Hop) -> Verdict {
    guard stage == .passed else { return .next }
    tickets.headers = takeTicket(hop)
    guard tickets.headers != 0 else { return .next }
    headers = hop.metadata
    if kind.receivesOne { return .hold }
    respond()
    return .pause
  }

  fileprivate func messageCame(_ hop: Hop) -> Verdict {
    // If the call allows only one response message, a second message is not shown to the function. The call
    // itself rejects it.
    guard stage == .passed, response == nil else { return .next }
    tickets.response = takeTicket(hop)
    guard tickets.response != 0 else { return .next }
    if kind.receivesOne {
      response = hop.message
      return .hold
    }
    // If a hop below has not passed the headers on, this message is the first event of a stream's response.
    respond()
    return .pause
  }

  fileprivate func statusCame(_ hop: Hop) -> Verdict {
    guard let arrived = hop.status else { return .next }
    if arrived.isLocal {
      end(arrived)
      return .next
    }
    guard stage == .passed else { return .next }
    tickets.status = takeTicket(hop)
    guard tickets.status != 0 else { return .next }
    status = arrived
    respond()
    return .pause
  }

  /// Called when the function has returned. Passes the response on, with the function's changes.
  func letGo(_ hop: Hop) {
    guard stage == .responded else { return }
    stage = .passing
    let call = hop.call
    let open = tickets
    call.settle(open.headers, .next)
    if let newResponse {
      if let response { response.exchange(with: newResponse) } else { lateResponse = newResponse }
    }
    call.settle(open.response, .next)
    if lateResponse != nil { pump(hop) } else { call.settle(open.status, .next) }
  }

  // MARK: - Ending and answering

  func finish(_ status: Status, _ hop: Hop) {
    switch stage {
    case .offered, .responded:
      stage = .passing
      hop.call.perform(.finish(hop, status))
    case .collecting, .passed, .passing, .answering, .over: break
    }
  }

  func begin(_ given: Answer, _ hop: Hop) {
    guard stage == .offered else { return }
    if given.headers == nil, given.messages.isEmpty {
      finish(given.status, hop)
      return
    }
    stage = .answering
    let open = tickets
    hop.call.settle(open.start, .take)
    hop.call.settle(open.request, .next)
    hop.call.settle(open.halfClose, .next)
    if let headers = given.headers { _ = hop.deliverHeaders(headers) }
    // `answer` is set only after the headers are delivered. The TAKE above already makes the call ask for
    // messages, so `pump` would otherwise deliver messages before the headers.
    answer = given
    pump(hop)
  }

  /// Delivers as many of the function's own response messages as the caller has asked for, and at last the
  /// status.
  func pump(_ hop: Hop) {
    if isPumping { return }
    isPumping = true
    defer { isPumping = false }
    if let late = lateResponse {
      guard hop.injectInbound(late) == .ok else { return }
      lateResponse = nil
      hop.call.settle(tickets.status, .next)
      return
    }
    while let message = answer?.messages.first {
      guard hop.injectInbound(message) == .ok else { return }
      answer?.messages.removeLeading(1)
    }
    if let done = answer {
      answer = nil
      _ = hop.deliverStatus(done.status)
    }
  }
}
