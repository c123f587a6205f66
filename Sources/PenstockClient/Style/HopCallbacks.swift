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
        call.demandCame(hop)
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
    if ticket == 0 { _ = hop.finish(InterceptedCall.noMemory) }
    return ticket
  }

  /// Gives an event that has come to the stage. `event`: makes it of its ticket.
  @inline(__always)
  private func meet(_ lane: Lane, _ hop: Hop, _ event: (UInt64) -> SyncStage.Event) -> Verdict {
    let stops = stage.stops(lane)
    let ticket = stops ? takeTicket(hop) : 0
    if stops, ticket == 0 { return .next }
    switch stage.handle(event(ticket), kind) {
    case .hold: return .hold
    case .offer:
      if !pool.offer(self) { _ = hop.finish(InterceptedCall.noThread) }
      return .pause
    case .tell(let response):
      tell(.responded(response))
      return .pause
    case .fail: _ = hop.finish(InterceptedCall.noMemory)
    case .nothing, .pass, .finish, .passOn, .restart, .take, .settle, .deliver: break
    }
    return .next
  }

  /// Carries out an action that does not answer a callback. `status`: that of the function's end or answer.
  @inline(__always)
  func follow(_ action: SyncStage.Action, _ hop: Hop, _ status: Status? = nil) {
    switch action {
    case .finish: if let status { hop.call.perform(.finish(hop, status)) }
    case .take(let open, let headers, let given): take(open, headers, given, hop)
    case .settle(let open, let response, let late): letGo(open, response, late, hop)
    case .deliver(let given): deliver(given, hop)
    case .nothing, .pass, .hold, .offer, .tell, .fail, .passOn, .restart: break
    }
  }

  // MARK: - On the way out

  fileprivate func startCame(_ hop: Hop) -> Verdict {
    hop.becomeShared()
    return meet(.outbound, hop) { .start($0) }
  }

  /// Called when the request message or the half-close (nil) has arrived at the hop. In blocking style the thread
  /// that will wait for the response half-closes the call, unless the user does so before: until then nobody knows
  /// on which thread the function has to run.
  fileprivate func requestCame(_ hop: Hop, _ message: Message?) -> Verdict {
    guard let message else { return meet(.outbound, hop) { .halfClose($0) } }
    guard case .collecting = stage else { return meet(.outbound, hop) { .request($0, isClosing: false) } }
    _ = function.edit { $0.message = message }
    let isClosing = ClientCall.of(hop)?.closesByWaiting == true
    return meet(.outbound, hop) { .request($0, isClosing: isClosing) }
  }

  /// Called when the function has called `next` for the first time. Passes the start on, with the function's
  /// changes.
  func passStart(_ hop: Hop, _ change: SyncFunction.Change?) {
    let call = hop.call
    if case .offered = stage, isStartChanged, !call.request.become(start) {
      return follow(stage.handle(.end, kind), hop, InterceptedCall.noMemory)
    }
    guard case .passOn(let open) = stage.handle(.next, kind) else { return }
    if let change, let message = change.of { message.exchange(with: change.to) }
    call.settle(open.start, .next)
    if let change, change.of == nil { _ = hop.injectOutbound(change.to) }
    call.settle(open.request, .next)
    call.settle(open.halfClose, .next)
  }

  /// Called when the function has called `next` after a status. The call begins again below the hop, and the
  /// response that waits at the hop is dropped.
  func startAgain(_ hop: Hop) {
    if case .responded(_, let response) = stage, let status = response.status {
      response.refusedAgain = hop.prepareRestart(status, sending: isStartChanged ? start : nil)
      let isRefused = response.refusedAgain != nil
      switch stage.handle(.again(isRefused: isRefused), kind) {
      case .tell(let response): tell(.responded(response))
      case .restart(let ticket): hop.call.settle(ticket, .restart)
      case .nothing, .pass, .hold, .offer, .fail, .finish, .passOn, .take, .settle, .deliver: break
      }
    }
  }

  // MARK: - On the way in

  /// The headers of a stream wait at the hop without a ticket if the registration says so (`Hop.holdsHeaders`): the
  /// function is told with the next event, a message or the status.
  fileprivate func headersCame(_ hop: Hop) -> Verdict {
    if case .passed(_, let response) = stage {
      response.headers = hop.metadata
      if !kind.receivesOne, hop.holdsHeaders { return .next }
    }
    return meet(.inbound, hop) { .headers($0) }
  }

  /// If a hop below has not passed the headers on, a message is the first event of a stream's response.
  fileprivate func messageCame(_ hop: Hop) -> Verdict {
    if case .passed(let open, let response) = stage, open.message == 0, kind.receivesOne {
      response.message = hop.message
    }
    return meet(.inbound, hop) { .message($0) }
  }

  fileprivate func statusCame(_ hop: Hop) -> Verdict {
    guard let arrived = hop.status else { return .next }
    if arrived.isLocal {
      end(arrived)
      return .next
    }
    if case .passed(_, let response) = stage { response.status = arrived }
    return meet(.inbound, hop) { .status($0) }
  }

  /// Called when the function has returned. Passes the response on, with the function's changes.
  private func letGo(
    _ open: SyncStage.Inbound, _ response: SyncResponse, _ late: SyncStage.Given?, _ hop: Hop
  ) {
    let call = hop.call
    if let message = response.message, let replacement = response.replacement {
      message.exchange(with: replacement)
    }
    call.settle(open.headers, .next)
    call.settle(open.message, .next)
    if let late { deliver(late, hop) } else { call.settle(open.status, .next) }
  }

  // MARK: - Answering

  private func take(_ open: SyncStage.Outbound, _ headers: Metadata?, _ given: SyncStage.Given, _ hop: Hop) {
    hop.call.settle(open.start, .take)
    hop.call.settle(open.request, .next)
    hop.call.settle(open.halfClose, .next)
    // The TAKE already makes the call ask for messages, but in the stage `delivering` that delivers none.
    if let headers { _ = hop.deliverHeaders(headers) }
    deliver(given, hop)
  }

  /// Called when the caller has asked for messages. Delivers as many of the function's own messages, and at last the
  /// status.
  fileprivate func demandCame(_ hop: Hop) { follow(stage.handle(.demand, kind), hop) }

  private func deliver(_ given: SyncStage.Given, _ hop: Hop) {
    var left = given
    while let message = left.messages.first {
      guard hop.injectInbound(message) == .ok else {
        _ = stage.handle(.left(left), kind)
        return
      }
      left.messages.removeLeading(1)
    }
    _ = stage.handle(.delivered, kind)
    switch given.end {
    case .own(let status): _ = hop.deliverStatus(status)
    case .waiting(let ticket): hop.call.settle(ticket, .next)
    }
  }
}
