import CPenstockMemory
public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockChannel
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockLink
import PenstockClient
import PenstockFraming

// The functions of channel.h.

/// Runs `body` on the channel. A NULL handle, or one of another process, is an error.
private func with(_ handle: OpaquePointer?, _ body: (ClientChannel) -> Outcome) -> penstock_result {
  guard let handle else { return PENSTOCK_E_INVALID_ARGUMENT }
  let channel = object(handle, ClientChannel.self)
  return Process.isForked(channel.generation) ? PENSTOCK_E_FORKED : body(channel).rawValue
}

@_cdecl("penstock_channel_new") @implementation
public func penstock_channel_new(
  _ target: UnsafePointer<CChar>!, _ options: UnsafePointer<CChar>!,
  _ out: UnsafeMutablePointer<OpaquePointer?>!, _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let target, let out else {
    return report(.invalidArgument, "target and channel must not be NULL", error)
  }
  if memoryIsLow { return report(.noMemory, "no memory for a channel", error) }
  switch ClientRuntime.shared() {
  case .failed(let errno, let what): return systemFailure(errno, what).report(error)
  case .made(let runtime): return make(runtime, target, options, out, error)
  }
}

@_cdecl("penstock_channel_new_on") @implementation
public func penstock_channel_new_on(
  _ handle: OpaquePointer!, _ target: UnsafePointer<CChar>!, _ options: UnsafePointer<CChar>!,
  _ out: UnsafeMutablePointer<OpaquePointer?>!, _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let handle, let target, let out else {
    return report(.invalidArgument, "runtime, target and channel must not be NULL", error)
  }
  let runtime = object(handle, ClientRuntime.self)
  if Process.isForked(runtime.generation) {
    return report(.forked, "the runtime belongs to the parent of this process", error)
  }
  if runtime.isClosed { return report(.closed, "the runtime has been shut down", error) }
  if memoryIsLow { return report(.noMemory, "no memory for a channel", error) }
  runtime.addUser()
  return make(runtime, target, options, out, error)
}

/// Makes a channel on `runtime`. The channel takes over one use of the runtime: the caller of this function
/// has counted it before.
private func make(
  _ runtime: ClientRuntime, _ target: UnsafePointer<CChar>, _ options: UnsafePointer<CChar>?,
  _ out: UnsafeMutablePointer<OpaquePointer?>, _ error: UnsafeMutablePointer<OpaquePointer?>?
) -> penstock_result {
  var parsed = ParsedChannelOptions()
  if let options, let failure = JSONReader.parse(bytes(options), { parsed.read($0) }) {
    runtime.removeUser()
    return failure.report(error)
  }
  switch parsed.channel(runtime, bytes(target)) {
  case .success(let channel):
    out.pointee = retained(channel)
    return PENSTOCK_OK
  case .failure(let failure):
    runtime.removeUser()
    return failure.report(error)
  }
}

@_cdecl("penstock_channel_retain") @implementation
public func penstock_channel_retain(_ handle: OpaquePointer!) -> OpaquePointer! {
  if let handle { object(handle, ClientChannel.self).retainHandle() }
  return retain(handle, ClientChannel.self)
}

@_cdecl("penstock_channel_release") @implementation
public func penstock_channel_release(_ handle: OpaquePointer!) {
  if let handle { object(handle, ClientChannel.self).releaseHandle() }
  release(handle, ClientChannel.self)
}

@_cdecl("penstock_channel_close") @implementation
public func penstock_channel_close(_ handle: OpaquePointer!) -> penstock_result {
  with(handle) { $0.close() }
}

/// A part of the certificates that a program hands in.
private enum PEMPart {
  case absent
  case given(ByteBuffer)
  case refused(Outcome)

  init(_ data: UnsafeRawPointer?, _ length: Int) {
    guard let bytes = bytes(data, length) else {
      self = .refused(.invalidArgument)
      return
    }
    if data == nil {
      self = .absent
    } else if let copy = ByteBuffer(copying: bytes) {
      self = .given(copy)
    } else {
      self = .refused(.noMemory)
    }
  }

  var text: ByteBuffer? {
    switch self {
    case .absent, .refused: nil
    case .given(let text): text
    }
  }

  var refusal: Outcome? {
    switch self {
    case .absent, .given: nil
    case .refused(let outcome): outcome
    }
  }
}

@_cdecl("penstock_channel_close_gracefully") @implementation
public func penstock_channel_close_gracefully(_ handle: OpaquePointer!, _ timeout: Int64) -> penstock_result {
  with(handle) { channel in
    timeout >= -1 ? channel.closeGracefully(timeoutMilliseconds: timeout) : .invalidArgument
  }
}

@_cdecl("penstock_channel_connectivity") @implementation
public func penstock_channel_connectivity(_ handle: OpaquePointer!) -> Int32 {
  guard let handle else { return Connectivity.shutdown.rawValue }
  let channel = object(handle, ClientChannel.self)
  return (Process.isForked(channel.generation) ? .shutdown : channel.connectivity).rawValue
}

@_cdecl("penstock_channel_wait_connectivity") @implementation
public func penstock_channel_wait_connectivity(
  _ handle: OpaquePointer!, _ old: Int32, _ timeout: Int64, _ out: UnsafeMutablePointer<Int32>!
) -> penstock_result {
  with(handle) { channel in
    guard let old = Connectivity(rawValue: old), timeout >= -1 else { return .invalidArgument }
    if old == .shutdown, channel.connectivity == old { return .closed }
    let (outcome, state) = channel.wait(for: old, timeoutMilliseconds: timeout)
    if outcome == .ok, let out { out.pointee = state.rawValue }
    return outcome
  }
}

@_cdecl("penstock_channel_watch_connectivity") @implementation
public func penstock_channel_watch_connectivity(
  _ handle: OpaquePointer!, _ function: penstock_connectivity_function!, _ data: UnsafeMutableRawPointer!,
  _ finalizer: penstock_finalizer!
) -> penstock_result {
  // `userData` is made first, so that the finalizer also runs on an error.
  let userData = UserData(data, finalizer)
  return with(handle) { channel in
    guard let function else { return .invalidArgument }
    return channel.add(ConnectivityWatch(function, userData))
  }
}

@_cdecl("penstock_channel_connect") @implementation
public func penstock_channel_connect(_ handle: OpaquePointer!) -> penstock_result {
  with(handle) { $0.connect() }
}

@_cdecl("penstock_channel_reset_backoff") @implementation
public func penstock_channel_reset_backoff(_ handle: OpaquePointer!) -> penstock_result {
  with(handle) { $0.resetBackoff() }
}

@_cdecl("penstock_channel_set_tls_pem") @implementation
public func penstock_channel_set_tls_pem(
  _ handle: OpaquePointer!, _ roots: UnsafeRawPointer!, _ rootsLength: Int, _ chain: UnsafeRawPointer!,
  _ chainLength: Int, _ key: UnsafeRawPointer!, _ keyLength: Int,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let handle else { return report(.invalidArgument, "channel must not be NULL", error) }
  let channel = object(handle, ClientChannel.self)
  if Process.isForked(channel.generation) {
    return report(.forked, "the channel belongs to the parent of this process", error)
  }
  if channel.isClosed { return report(.closed, "the channel or its runtime has been closed", error) }
  let roots = PEMPart(roots, rootsLength), chain = PEMPart(chain, chainLength), key = PEMPart(key, keyLength)
  if let refusal = roots.refusal ?? chain.refusal ?? key.refusal {
    return report(refusal, refusal == .noMemory ? "no memory" : "NULL is allowed with length 0 only", error)
  }
  switch channel.setCertificates(roots: roots.text, chain: chain.text, key: key.text) {
  case .made: return PENSTOCK_OK
  case nil: return report(.state, "the channel has no TLS", error)
  case .failed(let failure): return explain(failure, "", .invalidArgument).report(error)
  }
}

// MARK: - Calls

/// The call options of a handle; nil if the handle is NULL.
func options(_ handle: OpaquePointer?) -> CallOptions? { handle.map { object($0, CallOptions.self) } }

func explain(
  _ outcome: Outcome, _ method: UnsafePointer<CChar>, _ error: UnsafeMutablePointer<OpaquePointer?>?
) -> penstock_result {
  switch outcome {
  case .closed: return report(outcome, "the channel or its runtime has been closed", error)
  case .wouldDeadlock:
    return report(outcome, "a blocking call on the thread of an executor that the same call needs", error)
  case .invalidArgument:
    return Failure(
      outcome, ("method: expected \"/package.Service/Method\", got \"" as StaticString).bytes, bytes(method),
      ("\"" as StaticString).bytes
    ).report(error)
  default: return report(outcome, outcome.name, error)
  }
}

@_cdecl("penstock_channel_unary") @implementation
public func penstock_channel_unary(
  _ handle: OpaquePointer!, _ method: UnsafePointer<CChar>!, _ request: UnsafeRawPointer!, _ length: Int,
  _ callOptions: OpaquePointer!, _ reply: UnsafeMutablePointer<OpaquePointer?>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let handle, let method, let request = bytes(request, length), let reply else {
    return report(.invalidArgument, "channel, method, request and reply must not be NULL", error)
  }
  return unary(handle, method, callOptions, reply, error) { call in
    if call.codec != nil { return (.state, nil) }
    if request.count > call.request.settings.maxSendBytes { return (.tooLarge, nil) }
    guard let message = ByteBuffer(copying: request) else { return (.noMemory, nil) }
    return (.ok, .passRetained(message))
  }
}

@_cdecl("penstock_channel_unary_message") @implementation
public func penstock_channel_unary_message(
  _ handle: OpaquePointer!, _ method: UnsafePointer<CChar>!, _ request: OpaquePointer!,
  _ callOptions: OpaquePointer!, _ reply: UnsafeMutablePointer<OpaquePointer?>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let handle, let method, let request, let reply else {
    return report(.invalidArgument, "channel, method, request and reply must not be NULL", error)
  }
  let given = object(request, Message.self)
  return unary(handle, method, callOptions, reply, error) { call in
    guard let sent = given.fitting(call.codec) else { return (.state, nil) }
    if sent.count > call.request.settings.maxSendBytes { return (.tooLarge, nil) }
    return (.ok, .passRetained(sent))
  }
}

/// Makes a unary call and waits for its end. `make` returns the request message. Until the call exists, the
/// channel's handle keeps the channel; then the call keeps it.
private func unary(
  _ handle: OpaquePointer, _ method: UnsafePointer<CChar>, _ callOptions: OpaquePointer?,
  _ reply: UnsafeMutablePointer<OpaquePointer?>, _ error: UnsafeMutablePointer<OpaquePointer?>?,
  _ make: (Call) -> (Outcome, Unmanaged<Message>?)
) -> penstock_result {
  look(handle, ClientChannel.self) { channel in
    if Process.isForked(channel.generation) {
      return report(.forked, "the channel belongs to the parent of this process", error)
    }
    if channel.runtime.isDriving {
      return report(
        .wouldDeadlock, "a blocking call in a callback, on the thread that drives the runtime", error)
    }
    let options = options(callOptions)
    let (outcome, call) = ClientCall.make(channel, bytes(method), .unary, options, nil)
    guard let call else { return explain(outcome, method, error) }
    defer { call.release() }
    return call._withUnsafeGuaranteedRef { call in
      let (made, message) = borrow(call.call, make)
      guard let message else { return explain(made, call.call, error) }
      let (result, ended) = call.unary(message, options)
      guard result == .ok, let ended else { return explain(result, method, error) }
      reply.pointee = OpaquePointer(ended.toOpaque())
      return PENSTOCK_OK
    }
  }
}

/// Passes to the caller the error of a unary call whose message could not be made.
private func explain(
  _ outcome: Outcome, _ call: Call, _ error: UnsafeMutablePointer<OpaquePointer?>?
) -> penstock_result {
  switch outcome {
  case .tooLarge: report(outcome, "the request is over max_send_message_bytes", error)
  case .state:
    report(
      outcome,
      call.codec == nil
        ? "the call has no codec, so it takes bytes only" : "the call has a codec, so it takes objects of it",
      error)
  default: report(outcome, "no memory", error)
  }
}

@_cdecl("penstock_channel_call") @implementation
public func penstock_channel_call(
  _ handle: OpaquePointer!, _ method: UnsafePointer<CChar>!, _ kind: Int32, _ callOptions: OpaquePointer!,
  _ callbacks: UnsafePointer<penstock_call_callbacks>!, _ out: UnsafeMutablePointer<OpaquePointer?>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  var (table, failure) = read(callbacks)
  if let failure { return failure.report(error) }
  guard let handle, let method, let out else {
    return report(.invalidArgument, "channel, method and call must not be NULL", error)
  }
  guard let kind = CallKind(rawValue: kind) else {
    return report(.invalidArgument, "kind: expected PENSTOCK_KIND_...", error)
  }
  return look(handle, ClientChannel.self) { channel in
    if Process.isForked(channel.generation) {
      return report(.forked, "the channel belongs to the parent of this process", error)
    }
    let (outcome, call) = ClientCall.make(
      channel, bytes(method), kind, options(callOptions), table.take())
    guard let call else { return explain(outcome, method, error) }
    // The caller gets the handle before the call opens, because a callback on another thread may release the
    // handle.
    out.pointee = OpaquePointer(call._withUnsafeGuaranteedRef { retainNew($0) }.toOpaque())
    call._withUnsafeGuaranteedRef { $0.open() }
    call.release()
    return PENSTOCK_OK
  }
}

/// Reads the table of callbacks, and takes over its user data, also on failure. Only if struct_size is too
/// small, the user data stays with the caller.
func read(_ given: UnsafePointer<penstock_call_callbacks>?) -> (CallCallbacks?, Failure?) {
  guard let given else { return (nil, nil) }
  let table: penstock_call_callbacks
  switch readTable(given, "callbacks") {
  case .refused(let failure): return (nil, failure)
  case .read(let read): table = read
  }
  var callbacks = CallCallbacks(table.user_data, table.finalizer)
  callbacks.table.onHeaders = table.on_headers
  callbacks.table.onMessage = table.on_message
  callbacks.table.onSent = table.on_sent
  callbacks.table.onReply = table.on_reply
  callbacks.table.onReadable = table.on_readable
  if table.on_message != nil, table.on_readable != nil {
    return (nil, Failure(.invalidArgument, "callbacks: on_message and on_readable can't both be set"))
  }
  return (callbacks, nil)
}

// MARK: - Interceptors

@_cdecl("penstock_channel_add_interceptor") @implementation
public func penstock_channel_add_interceptor(
  _ handle: OpaquePointer!, _ interceptor: UnsafePointer<penstock_interceptor>!, _ priority: Int32,
  _ id: UnsafeMutablePointer<penstock_interceptor_id>!, _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  let channel = handle.map { object($0, ClientChannel.self) }
  return register(interceptor, id, error, channel?.registrations, channel?.generation) {
    channel?.add($0, priority: priority) ?? .invalidArgument
  }
}

@_cdecl("penstock_channel_interceptors_json") @implementation
public func penstock_channel_interceptors_json(
  _ handle: OpaquePointer!, _ text: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>!
) -> penstock_result {
  guard let handle, let text else { return PENSTOCK_E_INVALID_ARGUMENT }
  let channel = object(handle, ClientChannel.self)
  if Process.isForked(channel.generation) { return PENSTOCK_E_FORKED }
  return give(channel.entries, text)
}
