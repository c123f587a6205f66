import PenstockCall
import PenstockChannel
import PenstockClient
import PenstockHTTP
import PenstockLoop
import PenstockTransport
import PenstockWire

// The state and the figures of a channel as JSON, for penstock_channel_stats_json and in the snapshot of a
// runtime. docs/operating.md describes each member.

public func json(_ view: ChannelView, _ now: UInt64) -> JSON.Value? {
  JSON.object { object in
    object.set("target", JSON.string(view.target.view))
    object.set("state", JSON.string(view.state.name))
    object.set("policy", JSON.string(view.policy))
    object.set("name", json(view.name, now))
    object.set("attempts", json(view))
    object.set(
      "throttle",
      view.throttle.map { throttleJSON($0.tokens, $0.most) } ?? JSON.null)
    object.set(
      "tls",
      view.handshakes.map { counts in
        JSON.object { object in
          object.set("full_handshakes", JSON.int(counts.full))
          object.set("resumed_handshakes", JSON.int(counts.resumed))
        }.value
      } ?? JSON.null)
    object.set(
      "endpoints",
      JSON.array { list in for endpoint in view.endpoints { list.append(json(endpoint, now)) } })
  }.value
}

/// The tokens of a throttle and the most of them, both given in thousandths.
public func throttleJSON(_ tokens: Int, _ most: Int) -> JSON.Value? {
  JSON.object { object in
    object.set("tokens", JSON.int(tokens / 1000))
    object.set("max_tokens", JSON.int(most / 1000))
    object.set("retries_allowed", JSON.bool(tokens > most / 2))
  }.value
}

/// The time until `next`, in milliseconds; null: none.
private func wait(_ next: UInt64?, _ now: UInt64) -> JSON.Value? {
  next.map { JSON.int(milliseconds(now, $0)) } ?? JSON.null
}

private func json(_ name: NameView, _ now: UInt64) -> JSON.Value? {
  JSON.object { object in
    object.set("addresses", JSON.int(name.addresses))
    object.set("resolving", JSON.bool(name.isAsking))
    object.set("last_error", name.failure.map { JSON.string($0.view) } ?? JSON.null)
    object.set("next_ms", wait(name.next, now))
  }.value
}

private func json(_ view: ChannelView) -> JSON.Value? {
  JSON.object { object in
    object.set("started", JSON.int(view.attempts.started))
    object.set("succeeded", JSON.int(view.attempts.succeeded))
    object.set("failed", JSON.int(view.attempts.failed))
    object.set("in_flight", JSON.int(view.running))
    object.set("waiting", JSON.int(view.waiting))
    object.set("retries", JSON.int(view.attempts.retries))
    object.set("repeats", JSON.int(view.attempts.repeats))
    object.set("throttled", JSON.int(view.attempts.throttled))
  }.value
}

private func json(_ endpoint: EndpointView, _ now: UInt64) -> JSON.Value? {
  JSON.object { object in
    object.set("address", JSON.string(endpoint.address.view))
    object.set("state", JSON.string(endpoint.state.name))
    object.set("current", JSON.bool(endpoint.isCurrent))
    object.set("ejected", JSON.bool(endpoint.isEjected))
    object.set("weight", JSON.int(endpoint.weight))
    object.set("last_error", endpoint.failure.map { JSON.string($0.view) } ?? JSON.null)
    object.set("failures", JSON.int(endpoint.failures))
    object.set("next_ms", wait(endpoint.next, now))
    object.set(
      "connections",
      JSON.array { list in
        for connection in endpoint.connections { list.append(json(connection, now)) }
      })
  }.value
}

private func json(_ view: ConnectionView, _ now: UInt64) -> JSON.Value? {
  JSON.object { object in
    let facts = view.facts
    object.set("state", JSON.string(view.state.name))
    object.set("peer", JSON.string(facts.peer.view))
    object.set("local", facts.local.map { JSON.string($0.view) } ?? JSON.null)
    object.set("protocol", JSON.string(facts.rpc.name))
    object.set("http", JSON.string(facts.http))
    object.set("tls", facts.security.map { JSON.string($0.version.view) } ?? JSON.null)
    object.set("tls_resumed", facts.security.map { JSON.bool($0.isResumed) } ?? JSON.null)
    object.set("age_ms", JSON.int(milliseconds(facts.openedAt.value, now)))
    object.set("silent_ms", silentMilliseconds(facts.heardAt.value, now))
    object.set("streams", JSON.int(view.streams))
    object.set("streams_waiting", JSON.int(view.waiting))
    // A server that announces no limit allows as many as fit into 32 bits.
    object.set("streams_allowed", view.allowed < Int(Int32.max) ? JSON.int(view.allowed) : JSON.null)
    object.set("streams_opened", JSON.int(view.opened))
    object.set("sent_messages", JSON.int(facts.sentMessages.value))
    object.set("received_messages", JSON.int(facts.receivedMessages.value))
    object.set("sent_bytes", JSON.int(view.sentBytes))
    object.set("received_bytes", JSON.int(view.receivedBytes))
    object.set("keepalives", view.http2.map { JSON.int($0.pings) } ?? JSON.null)
    object.set("keepalives_answered", view.http2.map { JSON.int($0.answeredPings) } ?? JSON.null)
    object.set("send_window", view.http2.map { JSON.int($0.sendWindow) } ?? JSON.null)
    object.set("receive_window", view.http2.map { JSON.int($0.receiveWindow) } ?? JSON.null)
  }.value
}

extension Connectivity {
  fileprivate var name: StaticString {
    switch self {
    case .idle: "idle"
    case .connecting: "connecting"
    case .ready: "ready"
    case .transientFailure: "transient_failure"
    case .shutdown: "shutdown"
    }
  }
}

extension ConnectionView.State {
  fileprivate var name: StaticString {
    switch self {
    case .connecting: "connecting"
    case .ready: "ready"
    case .draining: "draining"
    case .closed: "closed"
    }
  }
}
