import PenstockWire

// Whom or what a call waits for, in words: for snapshots, traces, and the status of a deadline.

extension EventKind {
  /// The name of the event, as traces have it.
  public var name: StaticString {
    switch self {
    case .none: "none"
    case .start: "start"
    case .send: "send"
    case .halfClose: "half_close"
    case .headers: "headers"
    case .receive: "receive"
    case .status: "status"
    case .cancel: "cancel"
    case .demand: "demand"
    case .sent: "sent"
    case .create: "create"
    case .destroy: "destroy"
    case .pick: "pick"
    }
  }
}

extension Call {
  /// Says in words what `holder` says. On the driving thread. Empty: the call waits for nobody.
  public func words(for holder: Holder) -> ByteBuffer {
    let text = ByteBuffer()
    switch holder {
    case .running(let hop, let event):
      append("in the callback of ", hop, " about ", to: text)
      _ = text.append(event.name)
    case .hop(let standing): append(standing, to: text)
    case .taken(let hop): append("taken by ", hop, ", which has not answered", to: text)
    case .retry: if let wait = bottomCut?.wait { append(wait, to: text) }
    case .name, .connection, .slot, .endpoint, .server: below?.sayWait(for: holder, text)
    case .demand: _ = text.append("waiting for the caller to ask for a message")
    case .loop: _ = text.append("about to go on")
    case .nobody: break
    }
    return text
  }

  private func append(_ standing: Standing, to text: ByteBuffer) {
    let before: StaticString
    switch standing.state {
    case .unasked: return append("a message waits at ", standing.name, " until one is asked for", to: text)
    case .paused: before = "paused in "
    case .held: before = "held in "
    case .onExecutor: before = "on the executor of "
    case .heldBack, .queued: before = "in "
    }
    append(before, standing.name, " for ", to: text)
    let now = withLoop { $0.clock }
    append(now > standing.since ? (now - standing.since) / 1_000_000 : 0, to: text)
    _ = text.append(" ms")
  }

  private func append(_ wait: RetryWait, to text: ByteBuffer) {
    let now = withLoop { $0.clock }
    _ = text.append("waiting ")
    append(wait.until > now ? (wait.until - now) / 1_000_000 : 0, to: text)
    _ = text.append(" ms to send the request again after ") && text.append(wait.status.code.name)
    if !wait.status.message.isEmpty { _ = text.append(": ") && text.append(wait.status.message) }
  }

  private func append(
    _ before: StaticString, _ name: ByteBuffer, _ behind: StaticString, to text: ByteBuffer
  ) {
    _ =
      text.append(before) && text.append("`") && text.append(ByteView(rebasing: name.view.dropLast()))
      && text.append("`") && text.append(behind)
  }

  /// Appends a number with commas between groups of three digits: 3204 as "3,204".
  private func append(_ number: UInt64, to text: ByteBuffer) {
    if number >= 1000 {
      append(number / 1000, to: text)
      _ = text.append(byte: 0x2c)
    }
    var unit: UInt64 = 100
    while unit > 0 {
      if number >= unit || unit == 1 {
        _ = text.append(byte: 0x30 + UInt8(truncatingIfNeeded: number / unit % 10))
      }
      unit /= 10
    }
  }

  /// The status of a call whose deadline has passed. Its message says whom or what the call has waited for.
  func statusOfDeadline() -> Status {
    let start = ("deadline exceeded" as StaticString).bytes
    let holder = holder(standings)
    if leg == .unstarted, case .loop = holder {
      return Status(.deadlineExceeded, parts: start, (" before the request was sent" as StaticString).bytes)
    }
    let words = words(for: holder)
    if words.isEmpty { return Status(.deadlineExceeded, start) }
    return withExtendedLifetime(words) {
      Status(.deadlineExceeded, parts: start, (": " as StaticString).bytes, words.view)
    }
  }
}
