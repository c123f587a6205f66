import PenstockCall

// Texts that describe scenarios and their events.

extension EventKind {
  var word: String {
    switch self {
    case .none: "none"
    case .start: "on_start"
    case .send: "on_send"
    case .halfClose: "on_half_close"
    case .headers: "on_headers"
    case .receive: "on_receive"
    case .status: "on_status"
    case .cancel: "on_cancel"
    case .demand: "on_demand"
    case .sent: "on_sent"
    case .create: "create"
    case .destroy: "destroy"
    case .pick: "on_pick"
    }
  }
}

/// Writes numbers as text. Embedded Swift has no description of an array.
func listed(_ numbers: [Int]) -> String { "[" + numbers.map { "\($0)" }.joined(separator: ", ") + "]" }

func verdictWord(_ value: Int32) -> String {
  switch Verdict(rawValue: value) {
  case .next: "NEXT"
  case .pause: "PAUSE"
  case .hold: "HOLD"
  case .drop: "DROP"
  case .take: "TAKE"
  case .restart: "RESTART"
  case .skip: "SKIP"
  case nil: "\(value)"
  }
}

extension Scenario {
  static func words(_ executors: [ExecutorPlan]) -> [String] {
    executors.enumerated().map { index, executor in
      "  executor \(index): \(executor.isInline ? "at once" : executor.newestFirst ? "the newest first" : "in order")"
        + (executor.refusesFrom > 0 ? ", refuses \(executor.refusals) from \(executor.refusesFrom)" : "")
    }
  }

  var words: String {
    var lines = ["\(kind.word) call, opened with a demand of \(firstDemand)"]
    if let firstMessage { lines[0] += ", a message of \(firstMessage) bytes and half-close" }
    if let deadline { lines[0] += ", deadline \(deadline) ms" }
    if let codec {
      lines[0] +=
        "; a codec\(codec.copies ? "" : " that can't copy"), not for \(codec.cannotEncode), \(codec.cannotDecode) bytes"
    }
    if demandsWhenServed { lines[0] += "; asks for one more with each message" }
    lines += Scenario.words(executors)
    for (index, hop) in hops.enumerated() {
      let level = hop.isObject ? "objects" : hop.isPerAttempt ? "bytes, per attempt" : "bytes"
      var line = "  hop \(index): create \(hop.create.word), \(level), registered \(hop.registration)"
      line += ", hold_bytes \(hop.holdBytes)\(hop.shares ? ", shared" : "")"
      if hop.replayBytes > 0 { line += ", records \(hop.replayBytes) for \(hop.maxRestarts) restarts" }
      if hop.replayBytes > 0 { line += ", headers wait in kinds \(hop.headersWait)" }
      if let executors = hop.executors {
        let numbers = [executors.outbound, executors.inbound].map { $0.map { "\($0)" } ?? "none" }
        line += ", executors \(numbers[0]) and \(numbers[1])\(executors.inCreate ? " from create" : "")"
      }
      let missing = (HopPlan.laneKinds + HopPlan.signals).filter { !hop.has($0) }.map { $0.word }
      if !missing.isEmpty { line += ", without \(missing.joined(separator: " "))" }
      lines.append(line)
      for (kind, reactions) in hop.reactions.enumerated() where !reactions.isEmpty {
        let word = EventKind(rawValue: Int32(kind))!.word
        lines.append("    \(word): " + reactions.map { $0.words }.joined(separator: "; "))
      }
    }
    for (index, server) in servers.enumerated() {
      lines.append(
        "  server \(index + 1): " + server.items.map { $0.words }.joined(separator: ", ")
          + (server.ready > 0 ? "; \(server.ready) at once" : ""))
    }
    for (index, step) in steps.enumerated() {
      lines.append("  step \(index): \(step.act.words)\(step.runs ? ", run" : "")")
    }
    return lines.joined(separator: "\n")
  }
}

extension Reaction {
  var words: String {
    (operations.map { $0.words } + [verdictWord(verdict) + (takesTicket ? " with a ticket" : "")])
      .joined(separator: ", ")
  }
}

extension HopPlan.Create {
  var word: String {
    switch self {
    case .none: "none"
    case .next: "next"
    case .skip: "skip"
    case .nonsense: "nonsense"
    }
  }
}

extension CallKind {
  var word: String {
    switch self {
    case .unary: "unary"
    case .clientStream: "client-streaming"
    case .serverStream: "server-streaming"
    case .bidi: "bidi"
    }
  }
}

extension Operation {
  var words: String {
    switch self {
    case .change: "change"
    case .injectOutbound(let size): "send \(size)"
    case .halfClose: "half-close"
    case .injectInbound(let size): "deliver \(size)"
    case .demand(let n): "demand \(n)"
    case .finish(let code): "finish \(code)"
    case .setCount(let n): "set count \(n)"
    case .setDeadline(let ms): "set deadline \(ms)"
    case .resolveEarly(let end): "resolve early \(end.words)"
    case .deliverHeaders: "deliver headers"
    case .changeStart: "change the recorded start"
    case .setStartDeadline(let ms): "set the recorded deadline \(ms)"
    case .deliverStatus(let code): "deliver status \(code)"
    case .redirect(let channel): "redirect to channel \(channel)"
    case .turn: "the loop runs"
    }
  }
}

extension End {
  var words: String {
    switch self {
    case .verdict(let verdict): verdictWord(verdict.rawValue)
    case .finish(let code): "finish \(code)"
    case .after(let ms): "resume after \(ms)"
    }
  }
}

extension ServerPlan.Item {
  var words: String {
    switch self {
    case .headers: "headers"
    case .message(let size): "message \(size)"
    case .status(let code): "status \(code)"
    case .refused: "refused"
    }
  }
}

extension Step.Act {
  var words: String {
    switch self {
    case .nothing: "nothing"
    case .send(let size): "send \(size)"
    case .halfClose: "half-close"
    case .demand(let n): "demand \(n)"
    case .cancel: "cancel"
    case .server(let n): "server \(n)"
    case .sent(let n): "sent \(n)"
    case .lose: "lose the connection"
    case .tick(let ms): "tick \(ms)"
    case .resolve(let pick, let end): "resolve an open ticket (\(pick)): \(end.words)"
    case .resolveAny(let pick, let end): "resolve any ticket (\(pick)): \(end.words)"
    case .goOn(let index, let end): "the worker of hop \(index) goes on: \(end.words)"
    case .work(let number, let n): "executor \(number) runs \(n)"
    case .hop(let index, let operation): "hop \(index) from another thread: \(operation.words)"
    }
  }
}

extension Outcome {
  var word: String {
    switch self {
    case .ok: "OK"
    case .invalidArgument: "E_INVALID_ARGUMENT"
    case .unsupported: "E_UNSUPPORTED"
    case .already: "E_ALREADY"
    case .gone: "E_GONE"
    case .wouldBlock: "E_WOULD_BLOCK"
    case .state: "E_STATE"
    case .tooLarge: "E_TOO_LARGE"
    default: "result \(rawValue)"
    }
  }
}
