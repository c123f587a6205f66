import CPenstockMemory
import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockLink
import PenstockHTTP
import PenstockClient

// Traces and snapshots as JSON. They contain no messages and no values of metadata.

private func name(_ kind: CallKind) -> StaticString {
  switch kind {
  case .unary: "unary"
  case .clientStream: "client_stream"
  case .serverStream: "server_stream"
  case .bidi: "bidi"
  }
}

private func name(_ level: Level) -> StaticString { level == .object ? "object" : "bytes" }

private func verdict(_ value: Int32) -> JSON.Value? {
  switch Verdict(rawValue: value) {
  case .next: JSON.string("NEXT")
  case .pause: JSON.string("PAUSE")
  case .hold: JSON.string("HOLD")
  case .drop: JSON.string("DROP")
  case .take: JSON.string("TAKE")
  case .restart: JSON.string("RESTART")
  case .skip: JSON.string("SKIP")
  case nil: JSON.int(Int(value))
  }
}

public func milliseconds(_ from: UInt64, _ to: UInt64) -> UInt64 { to > from ? (to - from) / 1_000_000 : 0 }

// MARK: - One event

private func lane(_ note: TraceNote) -> JSON.Value? {
  switch note.event {
  case .start, .send, .halfClose, .demand, .pick: JSON.string("outbound")
  case .headers, .receive, .status, .sent: JSON.string("inbound")
  case .none, .create, .destroy, .cancel: JSON.null
  }
}

private func name(_ what: TraceNote.What) -> StaticString {
  switch what {
  case .callback: "callback"
  case .executor: "executor"
  case .resolved: "resolved"
  case .endedByHop: "ended_by_hop"
  case .restarted: "restarted"
  case .retries: "retries"
  case .notRestarted: "not_restarted"
  case .redirected: "redirected"
  case .sideCall: "side_call"
  case .caller: "caller"
  case .transport: "transport"
  case .waiting: "waiting"
  case .endedLocally: "ended_locally"
  case .ended: "ended"
  }
}

private func json(_ note: TraceNote, _ record: CallRecord, _ log: TraceLog) -> JSON.Value? {
  JSON.object { object in
    object.set("us", JSON.int(note.time > record.createdAt ? (note.time - record.createdAt) / 1000 : 0))
    object.set("what", JSON.string(name(note.what)))
    if note.hop >= 0, note.hop < log.hops.count {
      object.set("hop", JSON.terminated(log.hops[note.hop].name))
      object.set("index", JSON.int(note.hop))
      object.set("level", JSON.string(name(log.hops[note.hop].level)))
      object.set("attempt", JSON.int(Int(note.attempt)))
    } else {
      object.set("hop", JSON.null)
    }
    if note.event != .none {
      object.set("event", JSON.string(note.event.name))
      object.set("lane", lane(note))
    }
    if let answer = note.verdict { object.set("verdict", verdict(answer)) }
    switch note.what {
    case .callback: if note.event != .destroy { object.set("took_us", JSON.int(note.took / 1000)) }
    case .endedByHop, .endedLocally, .ended:
      object.set("code", JSON.int(note.detail))
    case .resolved: if note.verdict == nil { object.set("code", JSON.int(note.detail)) }
    case .transport: if note.event == .status { object.set("code", JSON.int(note.detail)) }
    case .restarted: object.set("restarts", JSON.int(note.detail))
    case .retries: object.set("after_us", JSON.int(note.detail / 1000))
    case .notRestarted:
      let outcome = Outcome(rawValue: Int32(truncatingIfNeeded: note.detail)) ?? .state
      object.set("why", JSON.string(outcome.name))
    case .sideCall: object.set("call", JSON.int(note.detail))
    case .waiting: object.set("for", lackName(UInt8(truncatingIfNeeded: note.detail)))
    case .executor, .redirected, .caller: break
    }
    if note.event == .demand || note.event == .sent, note.what != .callback {
      object.set("count", JSON.int(note.detail))
    }
    object.set("thread", JSON.string(note.isDriving ? "driving" : "other"))
    object.set("thread_id", JSON.int(UInt64(note.thread)))
  }.value
}

// MARK: - Who holds up the call

private func state(_ standing: Standing) -> StaticString {
  switch standing.state {
  case .paused: "paused"
  case .held: "held"
  case .heldBack: "kept"
  case .onExecutor: "executor"
  case .unasked: "demand"
  case .queued: "queued"
  }
}

private func json(_ standing: Standing, _ now: UInt64) -> JSON.Value? {
  JSON.object { object in
    object.set("hop", JSON.terminated(standing.name))
    object.set("index", JSON.int(standing.hop))
    object.set("level", JSON.string(name(standing.level)))
    object.set("attempt", JSON.int(Int(standing.attempt)))
    object.set("state", JSON.string(state(standing)))
    object.set("event", JSON.string(standing.event.name))
    object.set("for_ms", standing.since == 0 ? JSON.null : JSON.int(milliseconds(standing.since, now)))
    object.set("waiting", JSON.int(standing.waiting))
  }.value
}

private func json(_ holder: Holder, _ words: ByteBuffer, _ now: UInt64) -> JSON.Value? {
  func made(_ state: StaticString, _ hop: ByteBuffer? = nil, since: UInt64? = nil) -> JSON.Value? {
    JSON.object { object in
      object.set("state", JSON.string(state))
      object.set("hop", hop.map { JSON.terminated($0) } ?? JSON.null)
      if let since { object.set("for_ms", JSON.int(milliseconds(since, now))) }
      object.set("text", JSON.string(words.view))
    }.value
  }
  switch holder {
  case .running(let hop, _): return made("running", hop)
  case .hop(let standing):
    return made(state(standing), standing.name, since: standing.state == .unasked ? nil : standing.since)
  case .taken(let hop): return made("taken", hop)
  case .retry: return made("retry")
  case .name: return made("name")
  case .connection: return made("connection")
  case .slot: return made("slot")
  case .endpoint: return made("endpoint")
  case .demand: return made("demand")
  case .server: return made("server")
  case .loop: return made("loop")
  case .nobody: return JSON.null
  }
}

// MARK: - Calls

/// Fills in the members that the traces of running and of ended calls have in common.
private func fill(_ object: JSON.Object, _ record: CallRecord) {
  object.set("id", JSON.int(record.id))
  object.set("method", JSON.terminated(record.path))
  object.set("kind", JSON.string(name(record.kind)))
  object.set("target", JSON.terminated(record.target))
}

private func fillEvents(_ object: JSON.Object, _ record: CallRecord) {
  guard let log = record.log else {
    object.set("events", JSON.null)
    object.set("dropped", JSON.int(0))
    return
  }
  let events = log.copy()
  object.set(
    "events",
    events.flatMap { events in
      JSON.array { list in
        for index in 0..<events.count { list.append(json(events.notes[index], record, log)) }
      }
    })
  object.set("dropped", JSON.int(events?.dropped ?? 0))
}

private func fillStanding(_ object: JSON.Object, _ view: CallView, _ now: UInt64) {
  object.set("age_ms", JSON.int(milliseconds(view.record.createdAt, now)))
  object.set("deadline_ms", view.deadline.map { JSON.int(milliseconds(now, $0)) } ?? JSON.null)
  object.set("attempts", JSON.int(view.attempts))
  object.set("protocol", protocolName(view.connection))
  object.set("http", httpVersion(view.connection))
  object.set("connection_silent_ms", silentMilliseconds(view.connection?.heardAt.value ?? 0, now))
  object.set("peer", view.connection.map { JSON.string($0.peer.view) } ?? JSON.null)
  object.set("local", view.connection?.local.map { JSON.string($0.view) } ?? JSON.null)
  object.set("holder", json(view.holder, view.holderWords, now))
  for (key, lane) in [("outbound" as StaticString, Lane.outbound), ("inbound", .inbound)] {
    object.set(
      key,
      JSON.array { list in
        for standing in view.standings where standing.lane == lane { list.append(json(standing, now)) }
      })
  }
}

/// The trace of a call that has ended.
public func traceJSON(_ record: CallRecord) -> JSON.Value? {
  JSON.object { object in
    fill(object, record)
    object.set("ended", JSON.bool(true))
    object.set("holder", JSON.null)
    fillEvents(object, record)
  }.value
}

/// The trace of a call that may still be running. `view` is the loop's report of what the call is doing; nil:
/// the loop did not answer in time.
public func traceJSON(_ call: ClientCall, _ view: CallView?) -> JSON.Value? {
  JSON.object { object in
    // `ended` is read only once, because the call may end meanwhile.
    let reply = call.ended
    let record = view?.record ?? reply?.trace ?? call.record
    fill(object, record)
    object.set("ended", JSON.bool(reply != nil))
    if let view, reply == nil {
      fillStanding(object, view, call.channel.platform.clock())
    } else {
      object.set("holder", JSON.null)
    }
    fillEvents(object, record)
  }.value
}

private func json(_ running: CallWatch.Running, _ view: RuntimeView) -> JSON.Value? {
  JSON.object { object in
    object.set("interceptor", view.interceptor.map { JSON.terminated($0) } ?? JSON.null)
    object.set("event", JSON.string(running.event.name))
    object.set("call", JSON.int(running.call))
    object.set("for_ms", JSON.int(milliseconds(view.turnTime, view.now)))
  }.value
}

public func snapshotJSON(_ view: RuntimeView) -> JSON.Value? {
  JSON.object { object in
    object.set("complete", JSON.bool(view.isComplete))
    object.set("running", view.running.map { json($0, view) } ?? JSON.null)
    object.set("calls", view.calls.map { json($0, view.now) } ?? JSON.null)
    object.set(
      "channels",
      view.channels.map { channels in
        JSON.array { list in for channel in channels { list.append(json(channel, view.now)) } }
      } ?? JSON.null)
  }.value
}

private func json(_ calls: [CallView], _ now: UInt64) -> JSON.Value? {
  JSON.array { list in
    for call in calls {
      list.append(
        JSON.object { object in
          fill(object, call.record)
          fillStanding(object, call, now)
        }.value)
    }
  }
}
