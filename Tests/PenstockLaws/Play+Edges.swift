import PenstockCall
import PenstockWire

// The caller's side and the server's side of a play.

extension Play {
  func pump() {
    guard let call else { return }
    isPulled = false
    if !isStopped {
      let told = below.settle()
      if told > 0 { sent(told, call) }
    }
    while !isStopped, below.isOpen, served < available, model.broken == nil {
      switch server.items[served] {
      case .headers:
        served += 1
        let item = Model.Item(.headers)
        log("  server: headers")
        model.apply(.headers(item))
        below.headers(call)
      case .message(let size):
        guard call.wantsMessage else { return }
        // Demand that was put off while a callback ran may move on now.
        if !model.wantsMessage { model.advance() }
        model.require(model.wantsMessage, "demand", "a message is pulled that was not asked for")
        served += 1
        let item = Model.Item(.receive, id: identity(size), size: size)
        log("  server: message \(item.id)")
        let bytes = message(item)
        model.apply(.message(item))
        below.message(call, bytes)
      case .refused:
        served += 1
        isStopped = true
        let item = status(14)
        item.canRepeat = true
        item.repeatsLater = below.knowsPolicies && (scenario.steps.count + attempts) % 2 == 1
        log("  server: refuses, status \(item.id)\(item.repeatsLater ? ", by a policy" : "")")
        model.apply(.status(item))
        below.refuse(call, statusObject(item), byPolicy: item.repeatsLater)
      case .status(let code):
        served += 1
        isStopped = true
        let item = status(code)
        log("  server: status \(item.id) code \(code)")
        model.apply(.status(item))
        below.status(call, statusObject(item))
      }
    }
  }

  func sent(_ count: Int, _ call: Call) {
    log("  server: \(count) sent")
    model.apply(.sent(count))
    below.sent(call, count)
  }

  func connect(_ call: Call) {
    connect(below)
    call.attach(below: below)
    call.attach(above: above)
    loop.onMarker = { [unowned(unsafe) self] marker in
      if let input = inputs.removeValue(forKey: marker) {
        model.apply(input, isNested: nested.remove(marker) != nil)
      }
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
        let marker = marker(.demand(1))
        nested.insert(marker)
        call.perform(.resume(marker, at: 0))
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

  /// Makes a route to another channel. When the request uses it, it makes a new server's side with the number
  /// of that channel.
  func route(_ channel: Int) -> FakeRoute {
    FakeRoute(channel) { [unowned(unsafe) self] in
      let fresh = newBelow()
      fresh.channel = channel
      connect(fresh)
      below = fresh
      return fresh
    }
  }

  /// Reports the events of one attempt's server to the model, and checks that none of them comes after the
  /// end of that attempt.
  func connect(_ below: FakeBelow) {
    below.onAnother = { [unowned(unsafe) self, unowned(unsafe) below] in
      let fresh = newBelow()
      fresh.channel = below.channel
      connect(fresh)
      self.below = fresh
      isStopped = true
      return fresh
    }
    below.onStart = { [unowned(unsafe) self, unowned(unsafe) below] call in
      model.require(
        below === self.below && !below.hasStarted, "restart", "start on the stream of an attempt that is over"
      )
      below.hasStarted = true
      model.require(
        below.channel == model.requestChannel, "redirect",
        "start goes to channel \(below.channel), not \(model.requestChannel)")
      let item = Model.Item(.start)
      item.marks = marks(call.request.metadata)
      log("  server sees start")
      model.require(call.request.metadata.isReadOnly, "law 5", "the request can be changed after it has left")
      isStopped = false
      isPulled = true
      attempts += 1
      served = 0
      available = min(server.ready, server.items.count)
      model.serverSees(.start, item)
    }
    below.onSend = { [unowned(unsafe) self, unowned(unsafe) below] message in
      model.require(below === self.below, "restart", "a message on the stream of an attempt that is over")
      let item = self.item(.send, message)
      log("  server sees message \(item.id)")
      model.serverSees(.send, item)
    }
    below.onHalfClose = { [unowned(unsafe) self, unowned(unsafe) below] in
      model.require(below === self.below, "restart", "half-close on the stream of an attempt that is over")
      log("  server sees half-close")
      model.serverSees(.halfClose, Model.Item(.halfClose))
    }
    below.onPull = { [unowned(unsafe) self] in isPulled = true }
    below.onReset = { [unowned(unsafe) self, unowned(unsafe) below] in
      model.require(below === self.below, "restart", "reset on the stream of an attempt that is over")
      log("  server sees reset")
      isStopped = true
      model.serverReset()
    }
  }

  func disconnect() {
    loop.onMarker = { _ in }
    players = []
  }
}
