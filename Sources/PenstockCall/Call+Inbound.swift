import PenstockWire

// The inbound lane: headers, messages and the status, from the server toward the caller.

extension Call {
  /// Shows `event` to the hops from `index` upward, until one keeps it or it comes to the caller.
  @inline(never)
  func runInbound(_ event: Event, at index: Int) {
    if codec == nil, index < inStep { passUp(event, from: index) } else { runOneByOne(event, at: index) }
  }

  /// Nothing but hops in step is above.
  func passUp(_ event: Event, from index: Int) {
    guard inStep == 0 || runInStep(event, from: index) else { return }
    arrive(event)
  }

  /// The same, where hops count for themselves.
  @inline(never) @_optimize(size)
  private func runOneByOne(_ event: Event, at index: Int) {
    var index = index
    while true {
      if index == codecIndex - 1, let codec {
        if let message = event.message, !decode(message, codec) { return }
        // One status is enough: a message that cannot be encoded ends nothing any more.
        if case .status = event { outboundEnd = min(outboundEnd, codecIndex) }
      }
      if index < inStep {
        passUp(event, from: index)
        return
      }
      let hop = hops[index]
      guard hop.isActive else {
        index -= 1
        continue
      }
      guard meet(event, hop) else { return }
      index -= 1
    }
  }

  /// What a hop that has taken the call, or injects from another thread, delivers.
  func deliver(_ event: Event, from hop: Hop) {
    breakStep(at: hop.index)
    guard hop.isActive, phase == .live else { return }
    if hop.life != .answering, event.kind != .receive {
      // Start stands at the hop still: it counts if TAKE comes.
      if hop.mayDeliver { hop.earlyAnswers.append(event) }
      return
    }
    if case .status(let status) = event {
      finish(at: hop.index, status)
      return
    }
    if case .receive = event {
      hop.reserved += 1
      hop.station(.inbound).inject(event)
      drain(hop, .inbound)
      return
    }
    runInbound(event, at: hop.index - 1)
  }

  @inline(__always)
  func tellAbove(_ body: (CallAbove) -> Void) { above?._withUnsafeGuaranteedRef(body) }

  /// The event has come to the caller.
  func arrive(_ event: Event) {
    if trace != nil { note(.caller, nil, event.kind) }
    switch event {
    case .headers(let headers): arrive(headers)
    case .receive(let message): arrive(message)
    case .status(let status): arrive(status)
    case .start, .send, .halfClose: break
    }
  }

  func arrive(_ headers: Metadata) {
    headers.seal()
    headersCount += 1
    tellAbove { $0.callHeaders(headers) }
  }

  func arrive(_ message: Message) {
    // gRPC status codes, "Response cardinality violation".
    if inboundCount == 1, request.kind.receivesOne {
      finish(at: -1, Status(.unimplemented, "more than one response message in a call that has one"))
      return
    }
    inboundCount += 1
    tellAbove { $0.callMessage(message) }
  }

  func arrive(_ status: Status) {
    if status.code == .ok, inboundCount == 0, request.kind.receivesOne {
      complete(Status(.unimplemented, "no response message in a call that has one"))
    } else {
      complete(status)
    }
  }
}
