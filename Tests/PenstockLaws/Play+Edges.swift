import PenstockCall
import PenstockWire

// Both ends of the chain.

extension Play {
  func pump() {
    guard let call else { return }
    isPulled = false
    while !isStopped, served < available, model.broken == nil {
      switch scenario.server.items[served] {
      case .headers:
        served += 1
        let item = Model.Item(.headers)
        log("  server: headers")
        model.apply(.headers(item))
        call.inboundHeaders(Metadata())
      case .message(let size):
        guard call.wantsMessage else { return }
        model.require(model.wantsMessage, "demand", "a message is pulled that was not asked for")
        served += 1
        let item = Model.Item(.receive, id: identity(size), size: size)
        log("  server: message \(item.id)")
        model.apply(.message(item))
        call.inboundMessage(message(item))
      case .status(let code):
        served += 1
        isStopped = true
        let item = status(code)
        log("  server: status \(item.id) code \(code)")
        model.apply(.status(item))
        call.inboundStatus(statusObject(item))
      }
    }
  }

  func connect(_ call: Call) {
    call.attach(below: below)
    call.attach(above: above)
    loop.onMarker = { [unowned(unsafe) self] marker in
      if let input = inputs.removeValue(forKey: marker) {
        model.apply(input, isNested: nested.remove(marker) != nil)
      }
    }
    below.onStart = { [unowned(unsafe) self] call in
      let item = Model.Item(.start)
      item.marks = marks(call.request.metadata)
      log("  server sees start")
      model.require(call.request.metadata.isReadOnly, "law 5", "the request can be changed after it has left")
      isStopped = false
      isPulled = true
      model.serverSees(.start, item)
    }
    below.onSend = { [unowned(unsafe) self] message in
      let item = self.item(.send, message)
      log("  server sees message \(item.id)")
      model.serverSees(.send, item)
    }
    below.onHalfClose = { [unowned(unsafe) self] in
      log("  server sees half-close")
      model.serverSees(.halfClose, Model.Item(.halfClose))
    }
    below.onPull = { [unowned(unsafe) self] in isPulled = true }
    below.onReset = { [unowned(unsafe) self] in
      log("  server sees reset")
      isStopped = true
      model.serverReset()
    }
    above.onHeaders = { [unowned(unsafe) self] headers in
      let item = Model.Item(.headers)
      item.marks = marks(headers)
      log("  caller sees headers")
      model.callerSees(.headers, item)
    }
    above.onMessage = { [unowned(unsafe) self] message in
      let item = self.item(.receive, message)
      log("  caller sees message \(item.id)")
      model.callerSees(.receive, item)
      if scenario.demandsWhenServed, let call = self.call {
        let marker = mark(.demand(1))
        nested.insert(marker)
        call.perform(.resumeAfter(marker, nanoseconds: 0))
        call.perform(.demand(1))
      }
    }
    above.onSent = { [unowned(unsafe) self] n in
      log("  caller sees \(n) sent")
      model.callerSent(n)
    }
    above.onDiscard = { [unowned(unsafe) self] in
      log("  the caller's messages are discarded")
      discards += 1
    }
    above.onStatus = { [unowned(unsafe) self] status in
      let item = self.item(status)
      log("  caller sees status \(item.id) code \(item.code) \(text(status.message))")
      model.callerSees(.status, item)
      model.require(status.isReadOnly, "law 5", "a reply's status can be changed")
      if item.isLocal { model.require(discards == 1, "law 3", "a local end left \(discards) discards") }
      isEnded = true
      isStopped = true
    }
  }

  func disconnect() {
    loop.onMarker = { _ in }
    players = []
  }
}
