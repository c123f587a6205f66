import CPenstockMemory
import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockClient

// The statistics of a call as JSON, which a hop and a reply can give.

/// `platform` is the one whose clock the call's times are from.
public func json(_ stats: CallStatistics, _ values: CallValues?, _ platform: Platform) -> JSON.Value? {
  func since(_ time: UInt64) -> JSON.Value? {
    time >= stats.createdAt && time != 0 ? JSON.int((time - stats.createdAt) / 1000) : JSON.null
  }
  // The wall clock is read only here, so a call whose statistics nobody reads does not pay for it.
  let now = platform.clock()
  let age = now &- stats.createdAt
  let created = (platform.wallClock() &- age) / 1_000_000
  return JSON.object { object in
    object.set("created_unix_ms", JSON.int(created))
    object.set("first_byte_sent_us", since(stats.firstByteSentAt))
    object.set("headers_us", since(stats.headersAt))
    object.set("first_message_us", since(stats.firstMessageAt))
    object.set("duration_us", since(stats.endedAt))
    object.set("elapsed_us", stats.endedAt == 0 ? JSON.int(age / 1000) : since(stats.endedAt))
    object.set("attempts", JSON.int(stats.attempts))
    object.set(
      "waited", json(values, until: stats.endedAt == 0 ? stats.createdAt &+ age : stats.endedAt))
    object.set("sent", json(stats.sent))
    object.set("received", json(stats.received))
    object.set("peer", stats.connection.map { JSON.string($0.peer.view) } ?? JSON.null)
    object.set("local", stats.connection?.local.map { JSON.string($0.view) } ?? JSON.null)
    object.set("protocol", protocolName(stats.connection))
    object.set("http", httpVersion(stats.connection))
    object.set("connection_silent_ms", silentMilliseconds(stats.connection, stats.endedAt, now))
    object.set("tls", stats.connection?.security.map { json($0) } ?? JSON.null)
  }.value
}

/// How long the call's attempts have waited, by the reason of the wait (`Lack`). A wait that still goes on is
/// counted up to the time `end`.
private func json(_ values: CallValues?, until end: UInt64) -> JSON.Value? {
  JSON.object { object in
    object.set("name_us", JSON.int((values?.waits.waited(for: .name, until: end) ?? 0) / 1000))
    object.set("connection_us", JSON.int((values?.waits.waited(for: .connection, until: end) ?? 0) / 1000))
    object.set("slot_us", JSON.int((values?.waits.waited(for: .slot, until: end) ?? 0) / 1000))
  }.value
}

/// The name, in traces, of what an attempt waits for; null: it does not wait any more.
func lackName(_ lack: UInt8) -> JSON.Value? {
  switch Lack(rawValue: lack) ?? .nothing {
  case .nothing: JSON.null
  case .name: JSON.string("name")
  case .connection: JSON.string("connection")
  case .slot: JSON.string("slot")
  case .endpoint: JSON.string("endpoint")
  }
}

/// How long no byte had come from the peer when the call ended, at `end`; if `end` is 0, how long none has
/// come until `now`. null: bytes have come since the call's end, so the time is not known. The call does not
/// record the time when it ends, because only few programs ask for it.
private func silentMilliseconds(_ connection: ConnectionFacts?, _ end: UInt64, _ now: UInt64)
  -> JSON.Value?
{
  guard let heardAt = connection?.heardAt.value else { return JSON.null }
  if end == 0 { return silentMilliseconds(heardAt, now) }
  return heardAt > end ? JSON.null : silentMilliseconds(heardAt, end)
}

/// How long no byte has come from the peer by the time `now`; the last one came at `heardAt`. null: `heardAt`
/// is 0, because there is no connection.
func silentMilliseconds(_ heardAt: UInt64, _ now: UInt64) -> JSON.Value? {
  heardAt == 0 ? JSON.null : JSON.int(now > heardAt ? (now - heardAt) / 1_000_000 : 0)
}

/// The protocol of the calls on the connection; null without a connection.
func protocolName(_ connection: ConnectionFacts?) -> JSON.Value? {
  connection.map { JSON.string($0.rpc.name) } ?? JSON.null
}

/// The version of HTTP on the connection; null without a connection.
func httpVersion(_ connection: ConnectionFacts?) -> JSON.Value? {
  connection.map { JSON.string($0.http) } ?? JSON.null
}

private func json(_ traffic: CallStatistics.Traffic) -> JSON.Value? {
  JSON.object { object in
    object.set("messages", JSON.int(traffic.messages))
    object.set("bytes", JSON.int(traffic.bytes))
    object.set("compressed_bytes", JSON.int(traffic.compressedBytes))
    object.set("wire_bytes", JSON.int(traffic.wireBytes))
  }.value
}

private func json(_ security: SecurityFacts) -> JSON.Value? {
  JSON.object { object in
    object.set("version", JSON.string(security.version.view))
    object.set("cipher", JSON.string(security.cipher.view))
    object.set("alpn", JSON.string(security.alpn.view))
    object.set("certificates", JSON.int(security.certificateCount))
  }.value
}
