import CPenstockMemory
public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockReady
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockClient

// The functions of ready.h, which fill in the tables (penstock_interceptor) of ready-made interceptors.

private typealias Table = UnsafeMutablePointer<penstock_interceptor>

/// Fills in a penstock_interceptor, whatever it has been before; its user_data becomes a counted reference to
/// `ready`.
func fill(
  _ table: UnsafeMutablePointer<penstock_interceptor>?, _ argument: StaticString, _ ready: ReadyInterceptor
) -> Failure? {
  var failure = write(ready, table, argument, hears: true)
  // The table of a program that knows an older version may have no room for on_connection.
  if failure?.outcome == .unsupported { failure = write(ready, table, argument, hears: false) }
  if failure == nil { ready.retainForTable() }
  return failure
}

private func write(_ ready: ReadyInterceptor, _ table: Table?, _ argument: StaticString, hears: Bool)
  -> Failure?
{
  writeTable(table, argument) { table in
    table = penstock_interceptor()
    table.name = cString(ready.name)
    table.kinds = ready.kinds
    table.level = ready.level.rawValue
    table.per_attempt = ready.isPerAttempt ? 1 : 0
    table.user_data = ready.toOpaque()
    table.finalizer = ReadyInterceptor.finalize
    table.takeCallbacks(ready.callbacks)
    if hears {
      table.on_connection = unsafeBitCast(
        ready.callbacks.onConnection, to: penstock_connection_callback?.self)
    }
    table.replay_bytes = ready.replayBytes
    return nil
  }
}

/// Reads the options from JSON, makes the interceptor and fills in the table for it.
func make<Options>(
  _ json: UnsafePointer<CChar>?, _ table: UnsafeMutablePointer<penstock_interceptor>?,
  _ error: UnsafeMutablePointer<OpaquePointer?>?,
  _ defaults: Options, _ read: (JSONReader, inout Options) -> Failure?,
  _ ready: (Options) -> ReadyInterceptor
) -> penstock_result {
  let (options, failure) = parse(json, defaults, read)
  if let failure { return failure.report(error) }
  return fill(table, "table", ready(options))?.report(error) ?? PENSTOCK_OK
}

/// Parses options from JSON; NULL counts as an empty object.
func parse<Options>(
  _ json: UnsafePointer<CChar>?, _ defaults: Options, _ read: (JSONReader, inout Options) -> Failure?
) -> (Options, Failure?) {
  var options = defaults
  let failure = JSONReader.parse(bytes(json ?? cString("{}"))) { read($0, &options) }
  return (options, failure)
}

@_cdecl("penstock_ready_share") @implementation
public func penstock_ready_share(
  _ table: UnsafePointer<penstock_interceptor>!, _ other: UnsafeMutablePointer<penstock_interceptor>!
) -> penstock_result {
  let (found, outcome) = ready(of: table)
  guard let found else { return outcome.rawValue }
  return (fill(other, "other", found)?.outcome ?? .ok).rawValue
}

/// The interceptor behind a table that a function of this file has filled in. nil: there is none; the outcome is the
/// reason.
private func ready(of table: UnsafePointer<penstock_interceptor>?) -> (ReadyInterceptor?, Outcome) {
  let given: penstock_interceptor
  switch borrowTable(table, "table") {
  case .tooNew(_, let failure), .unreadable(let failure): return (nil, failure.outcome)
  case .known(let known): given = known
  }
  guard let finalizer = given.finalizer, let state = given.user_data,
    unsafeBitCast(finalizer, to: UInt.self) == unsafeBitCast(ReadyInterceptor.finalize, to: UInt.self)
  else { return (nil, .invalidArgument) }
  let ready = ReadyInterceptor.from(state)
  // A process that was forked must not use the interceptor: another thread may have held its lock at that
  // time.
  return Process.isForked(ready.generation) ? (nil, .forked) : (ready, .ok)
}

@_cdecl("penstock_ready_bearer_token") @implementation
public func penstock_ready_bearer_token(
  _ json: UnsafePointer<CChar>!, _ source: penstock_token_source!, _ userData: UnsafeMutableRawPointer!,
  _ finalizer: penstock_finalizer!, _ table: UnsafeMutablePointer<penstock_interceptor>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  let data = UserData(userData, finalizer)
  guard let source else { return report(.invalidArgument, "source must not be NULL", error) }
  return make(json, table, error, BearerToken.Options(), read) { BearerToken($0, source, data) }
}

@_cdecl("penstock_ready_token_file") @implementation
public func penstock_ready_token_file(
  _ json: UnsafePointer<CChar>!, _ table: UnsafeMutablePointer<penstock_interceptor>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  make(json, table, error, TokenFile.Options(), read) { TokenFile.interceptor($0) }
}

/// The `on_connection` of the ready-made log.
private let logEvent: ConnectionCallback = { userData, event in
  guard let userData, let told = event?.assumingMemoryBound(to: penstock_connection_event.self).pointee,
    let line = told.json
  else { return }
  let log = Unmanaged<LogLines>.fromOpaque(userData).takeUnretainedValue()
  log.log(line, bytes(line).count, told.level)
}

/// The `on_connection` of the ready-made metrics.
private let countEvent: ConnectionCallback = { userData, event in
  guard let userData, let told = event?.assumingMemoryBound(to: penstock_connection_event.self).pointee,
    let target = told.target, let address = told.address, let kind = ConnectionNews.Kind(rawValue: told.kind)
  else { return }
  let counting = Unmanaged<MetricsInterceptor>.fromOpaque(userData).takeUnretainedValue()
  counting.metrics.count(kind, bytes(target), bytes(address))
}

/// Whether the function at `address` is the `on_connection` of a ready-made interceptor.
func isReadyCallback(_ address: UInt) -> Bool {
  address == unsafeBitCast(logEvent, to: UInt.self) || address == unsafeBitCast(countEvent, to: UInt.self)
}

@_cdecl("penstock_ready_logging") @implementation
public func penstock_ready_logging(
  _ json: UnsafePointer<CChar>!, _ write: penstock_log_line!, _ userData: UnsafeMutableRawPointer!,
  _ finalizer: penstock_finalizer!, _ table: UnsafeMutablePointer<penstock_interceptor>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  let data = UserData(userData, finalizer)
  guard let write else { return report(.invalidArgument, "write must not be NULL", error) }
  return make(json, table, error, LogLines.Options(), read) {
    LogLines($0, write, data, hear: logEvent)
  }
}

@_cdecl("penstock_ready_trace_context") @implementation
public func penstock_ready_trace_context(
  _ json: UnsafePointer<CChar>!, _ table: UnsafeMutablePointer<penstock_interceptor>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  make(json, table, error, TraceContext.Options(), read) { TraceContext($0) }
}

@_cdecl("penstock_ready_response_cache") @implementation
public func penstock_ready_response_cache(
  _ json: UnsafePointer<CChar>!, _ table: UnsafeMutablePointer<penstock_interceptor>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  make(json, table, error, ResponseCache.Options(), read) { ResponseCache($0) }
}

@_cdecl("penstock_ready_rate_limit") @implementation
public func penstock_ready_rate_limit(
  _ json: UnsafePointer<CChar>!, _ table: UnsafeMutablePointer<penstock_interceptor>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  make(json, table, error, RateLimit.Options(), read) { RateLimit($0) }
}

@_cdecl("penstock_ready_fault_injection") @implementation
public func penstock_ready_fault_injection(
  _ json: UnsafePointer<CChar>!, _ table: UnsafeMutablePointer<penstock_interceptor>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  make(json, table, error, FaultInjection.Options(), read) { FaultInjection($0) }
}

@_cdecl("penstock_ready_header_rules") @implementation
public func penstock_ready_header_rules(
  _ json: UnsafePointer<CChar>!, _ table: UnsafeMutablePointer<penstock_interceptor>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  make(json, table, error, HeaderEdits.Lists(), read) { HeaderEdits($0) }
}

// MARK: - Hedging

@_cdecl("penstock_ready_hedging") @implementation
public func penstock_ready_hedging(
  _ json: UnsafePointer<CChar>!, _ other: OpaquePointer!,
  _ table: UnsafeMutablePointer<penstock_interceptor>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  let channel = other.map { object($0, ClientChannel.self) }
  if let channel, Process.isForked(channel.generation) {
    return report(.forked, "the channel belongs to the parent of this process", error)
  }
  return make(json, table, error, Hedging.Options(), read) { options in
    Hedging(options, other: channel.map { OtherChannel($0) })
  }
}

@_cdecl("penstock_hedging_stats_json") @implementation
public func penstock_hedging_stats_json(
  _ table: UnsafePointer<penstock_interceptor>!, _ json: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>!
) -> penstock_result {
  let (found, outcome) = ready(of: table)
  guard let found, let json else { return (outcome == .ok ? .invalidArgument : outcome).rawValue }
  guard bytesEqual(found.name.bytes, ("hedging" as StaticString).bytes) else {
    return PENSTOCK_E_INVALID_ARGUMENT
  }
  // The name belongs to this class alone.
  let state = unsafeDowncast(found, to: Hedging.self).state
  guard let made = JSON.dump(stats(state)) else { return PENSTOCK_E_NO_MEMORY }
  json.pointee = made
  return PENSTOCK_OK
}

private func stats(_ state: (counts: Hedging.Counts, throttle: (tokens: Int, most: Int)?)) -> JSON.Value? {
  JSON.object { object in
    let counts = state.counts
    object.set("calls", JSON.int(counts.calls))
    object.set("sent", JSON.int(counts.sent))
    object.set("open", JSON.int(counts.open))
    object.set("won", JSON.int(counts.won))
    object.set("failed", JSON.int(counts.failed))
    object.set("cancelled", JSON.int(counts.cancelled))
    object.set("hedges", JSON.int(counts.hedges))
    object.set("hedges_won", JSON.int(counts.hedgesWon))
    object.set("throttled", JSON.int(counts.throttled))
    object.set("refused", JSON.int(counts.refused))
    object.set("throttle", state.throttle.map { throttleJSON($0.tokens, $0.most) } ?? JSON.null)
  }.value
}

// MARK: - Metrics

@_cdecl("penstock_metrics_new") @implementation
public func penstock_metrics_new(
  _ json: UnsafePointer<CChar>!, _ metrics: UnsafeMutablePointer<OpaquePointer?>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let metrics else { return report(.invalidArgument, "metrics must not be NULL", error) }
  let (options, failure) = parse(json, Metrics.Options(), read)
  if let failure { return failure.report(error) }
  metrics.pointee = retained(Metrics(options))
  return PENSTOCK_OK
}

@_cdecl("penstock_metrics_retain") @implementation
public func penstock_metrics_retain(_ metrics: OpaquePointer!) -> OpaquePointer! {
  retain(metrics, Metrics.self)
}

@_cdecl("penstock_metrics_release") @implementation
public func penstock_metrics_release(_ metrics: OpaquePointer!) { release(metrics, Metrics.self) }

@_cdecl("penstock_ready_metrics") @implementation
public func penstock_ready_metrics(
  _ metrics: OpaquePointer!, _ table: UnsafeMutablePointer<penstock_interceptor>!
) -> penstock_result {
  guard let metrics else { return PENSTOCK_E_INVALID_ARGUMENT }
  let counted = object(metrics, Metrics.self)
  if Process.isForked(counted.generation) { return PENSTOCK_E_FORKED }
  return (fill(table, "table", MetricsInterceptor(counted, hear: countEvent))?.outcome ?? .ok).rawValue
}

private func give(
  _ metrics: OpaquePointer?, _ out: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?,
  _ text: (Metrics) -> ByteBuffer?
) -> penstock_result {
  guard let metrics, let out else { return PENSTOCK_E_INVALID_ARGUMENT }
  let counted = object(metrics, Metrics.self)
  // A process that was forked must not use the metrics: another thread may have held their lock at that time.
  if Process.isForked(counted.generation) { return PENSTOCK_E_FORKED }
  guard let made = text(counted)?.take().0 else { return PENSTOCK_E_NO_MEMORY }
  out.pointee = made.assumingMemoryBound(to: CChar.self)
  return PENSTOCK_OK
}

@_cdecl("penstock_metrics_snapshot_json") @implementation
public func penstock_metrics_snapshot_json(
  _ metrics: OpaquePointer!, _ json: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>!
) -> penstock_result {
  give(metrics, json) { $0.json() }
}

@_cdecl("penstock_metrics_prometheus_text") @implementation
public func penstock_metrics_prometheus_text(
  _ metrics: OpaquePointer!, _ text: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>!
) -> penstock_result {
  give(metrics, text) { $0.prometheusText() }
}

// MARK: - The token that is asked for

@_cdecl("penstock_token_complete") @implementation
public func penstock_token_complete(
  _ request: penstock_token_request, _ token: UnsafePointer<CChar>!, _ expires: Int64
) -> penstock_result {
  guard let token, expires >= -1 else { return PENSTOCK_E_INVALID_ARGUMENT }
  return TokenRequests.complete(
    request, bytes(token), lifetime: expires < 0 ? nil : nanoseconds(UInt64(expires))
  ).rawValue
}

@_cdecl("penstock_token_fail") @implementation
public func penstock_token_fail(
  _ request: penstock_token_request, _ code: Int32, _ message: UnsafePointer<CChar>!
) -> penstock_result {
  guard code != 0 else { return PENSTOCK_E_INVALID_ARGUMENT }
  let (made, outcome) = status(code, message)
  guard let made else { return outcome.rawValue }
  return TokenRequests.fail(request, made).rawValue
}
