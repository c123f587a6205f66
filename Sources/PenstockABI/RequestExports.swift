public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockLink
import PenstockClient
import PenstockFraming

// The functions of request.h: for the request of a call, in a hop, in call options or in a picker. The handle
// of a request is the handle of the hop, the options or the pick.

/// The call options, if the handle belongs to call options; otherwise nil.
func callOptions(_ handle: OpaquePointer?) -> CallOptions? {
  guard let handle else { return nil }
  let object = Unmanaged<HopHandle>.fromOpaque(UnsafeRawPointer(handle)).takeUnretainedValue()
  return object.form == .options ? unsafeDowncast(object, to: CallOptions.self) : nil
}

/// The picker, if the handle belongs to a pick; otherwise nil.
private func picker(_ handle: OpaquePointer?) -> Picker? {
  guard let handle else { return nil }
  let object = Unmanaged<HopHandle>.fromOpaque(UnsafeRawPointer(handle)).takeUnretainedValue()
  return object.form == .pick ? unsafeDowncast(object, to: Picker.self) : nil
}

@_cdecl("penstock_call_options_request") @implementation
public func penstock_call_options_request(_ options: OpaquePointer!) -> OpaquePointer! { options }

/// The request that a handle shows.
enum ShownStart {
  case nothing
  /// The handle is that of a hop in a callback: the request as the callback sees it.
  case running(Hop)
  /// The handle is that of an event that waits at a hop, or of a pick: this request.
  case request(Request, Call)
}

func start(_ handle: OpaquePointer?) -> ShownStart {
  guard let handle, callOptions(handle) == nil else { return .nothing }
  if let picker = picker(handle) { return picker.call.map { .request($0.request, $0) } ?? .nothing }
  let referent = HopHandle.referent(handle)
  if referent.hop.currentEvent != .none { return .running(referent.hop) }
  guard case .bound(let bound) = referent, let request = bound.request else { return .nothing }
  return .request(request, bound.hop.call)
}

/// The settings of the call options, or of the request that the handle shows; nil if it shows none.
private func settings(_ handle: OpaquePointer?) -> CallSettings? {
  if let options = callOptions(handle) { return options.settings(CallDefaults()) }
  switch start(handle) {
  case .nothing: return nil
  case .running(let hop): return hop.settings
  case .request(let request, _): return request.settings
  }
}

/// The labels of a request, as far as a handle shows them.
private enum ShownLabels {
  case notReadable
  /// nil: the request has none of its own.
  case labels(RequestLabels?)

  /// The labels of the request that the handle shows; nil also if it shows none.
  var found: RequestLabels? {
    switch self {
    case .notReadable: nil
    case .labels(let labels): labels
    }
  }

  /// The text for a getter: NULL if there is no request to read, "" if it has no such label.
  func text(_ which: (RequestLabels) -> UnsafePointer<CChar>?) -> UnsafePointer<CChar>? {
    switch self {
    case .notReadable: nil
    case .labels(let labels): labels.flatMap(which) ?? cString("")
    }
  }
}

private func labels(_ handle: OpaquePointer?) -> ShownLabels {
  if let options = callOptions(handle) { return .labels(options.labels) }
  switch start(handle) {
  case .nothing: return .notReadable
  case .running(let hop): return .labels(hop.labels)
  case .request(let request, _): return .labels(request.labels)
  }
}

/// Stores a value of the request in `out`; `value` is nil if the handle shows no request.
func tell<T>(_ handle: OpaquePointer?, _ value: T?, _ out: UnsafeMutablePointer<T>?)
  -> penstock_result
{
  guard let handle, let out else { return fail(handle, .invalidArgument) }
  if let value {
    look(handle, HopHandle.self) { $0.forgetRefusal() }
    out.pointee = value
    return PENSTOCK_OK
  }
  if picker(handle) != nil { return fail(handle, .state) }
  return withHop(handle, { $0.refuseRead() }, { $0.hop.refuseRead() })
}

private func edit(
  _ handle: OpaquePointer?, _ change: (Request) -> Outcome, options set: (CallOptions) -> Outcome
) -> penstock_result {
  if let options = callOptions(handle) {
    return (Process.isForked(options.generation) ? .forked : set(options)).rawValue
  }
  if picker(handle) != nil { return fail(handle, .state) }
  return withHop(
    handle, { $0.editStart(change) },
    { $0.hop.currentEvent == .none ? $0.edit(change) : $0.hop.editStart(change) })
}

/// Sets one setting, of the request or of the call options that the handle shows.
private func set(
  _ handle: OpaquePointer?, _ change: (inout CallSettings) -> Void, options set: (CallOptions) -> Void
) -> penstock_result {
  edit(
    handle,
    {
      change(&$0.settings)
      return .ok
    },
    options: {
      set($0)
      return .ok
    })
}

private func label(_ handle: OpaquePointer?, contentType: ByteBuffer?, userAgent: ByteBuffer?)
  -> penstock_result
{
  let labels = RequestLabels(authority: nil, contentType: contentType, userAgent: userAgent)
  return edit(
    handle,
    {
      $0.takeLabels(of: labels)
      return .ok
    },
    options: {
      $0.labels = labels
      return .ok
    })
}

/// The limit `bytes`, if the JSON options would allow it too (0 to 2^31 - 1); otherwise nil.
private func limit(_ bytes: Int) -> Int? { bytes >= 0 && bytes <= Int(Int32.max) ? bytes : nil }

@_cdecl("penstock_request_metadata") @implementation
public func penstock_request_metadata(_ handle: OpaquePointer!) -> OpaquePointer! {
  guard let handle else { return nil }
  if let options = callOptions(handle) { return borrowed(options.metadata) }
  if let picker = picker(handle) { return picker.call.map { borrowed($0.request.metadata) } }
  let referent = HopHandle.referent(handle)
  if case .bound(let bound) = referent, bound.hop.currentEvent == .none {
    return bound.requestMetadata.map { borrowed($0) }
  }
  return referent.hop.requestMetadata.map { borrowed($0) }
}

@_cdecl("penstock_request_method") @implementation
public func penstock_request_method(_ handle: OpaquePointer!) -> UnsafePointer<CChar>! {
  switch start(handle) {
  case .nothing: nil
  case .running(let hop): cString(hop.path)
  case .request(let request, _): cString(request.path)
  }
}

@_cdecl("penstock_request_set_method") @implementation
public func penstock_request_set_method(_ handle: OpaquePointer!, _ method: UnsafePointer<CChar>!)
  -> penstock_result
{
  guard let method else { return fail(handle, .invalidArgument) }
  return edit(
    handle,
    { start in
      guard Request.isValidPath(bytes(method)) else { return .invalidArgument }
      return start.setPath(bytes(method)) ? .ok : .noMemory
    }, options: { _ in .state })
}

@_cdecl("penstock_request_authority") @implementation
public func penstock_request_authority(_ handle: OpaquePointer!) -> UnsafePointer<CChar>! {
  if let options = callOptions(handle) { return options.authorityText.map { cString($0) } }
  switch start(handle) {
  case .nothing: return nil
  case .running(let hop): return cString(hop.authority ?? hop.defaultAuthority)
  case .request(let request, let call):
    return cString(request.authority ?? request.route?.authority ?? call.origin.defaultAuthority)
  }
}

@_cdecl("penstock_request_set_authority") @implementation
public func penstock_request_set_authority(_ handle: OpaquePointer!, _ authority: UnsafePointer<CChar>!)
  -> penstock_result
{
  guard let authority else { return fail(handle, .invalidArgument) }
  guard Request.isValidAuthority(bytes(authority)) else { return fail(handle, .invalidArgument) }
  guard let text = ByteBuffer(copying: bytes(authority)) else { return fail(handle, .noMemory) }
  return edit(
    handle, { $0.setAuthority(bytes(authority)) ? .ok : .noMemory },
    options: {
      $0.authority = text
      return .ok
    })
}

@_cdecl("penstock_request_deadline_ms") @implementation
public func penstock_request_deadline_ms(_ handle: OpaquePointer!, _ ms: UnsafeMutablePointer<Int64>!)
  -> penstock_result
{
  if let options = callOptions(handle) {
    return tell(handle, options.deadline.map { Int64(clamping: $0 / 1_000_000) } ?? -1, ms)
  }
  switch start(handle) {
  case .nothing: return tell(handle, nil, ms)
  case .running(let hop): return tell(handle, left(hop.deadline, hop.call), ms)
  case .request(let request, let call): return tell(handle, left(request.deadline, call), ms)
  }
}

private func left(_ deadline: UInt64?, _ call: Call) -> Int64 {
  guard let deadline else { return -1 }
  let now = call.clock
  return deadline > now ? Int64(clamping: (deadline - now) / 1_000_000) : 0
}

@_cdecl("penstock_request_set_deadline_ms") @implementation
public func penstock_request_set_deadline_ms(_ handle: OpaquePointer!, _ ms: Int64) -> penstock_result {
  guard ms >= -1 else { return fail(handle, .invalidArgument) }
  func time(_ hop: Hop) -> UInt64? {
    guard ms >= 0 else { return nil }
    let (time, overflow) = hop.clock.addingReportingOverflow(nanoseconds(UInt64(ms)))
    return overflow ? nil : time
  }
  if let options = callOptions(handle) {
    if Process.isForked(options.generation) { return fail(handle, .forked) }
    options.setDeadline(ms < 0 ? nil : nanoseconds(UInt64(ms)))
    return PENSTOCK_OK
  }
  if picker(handle) != nil { return fail(handle, .state) }
  return withHop(
    handle, { $0.setDeadline(time($0)) },
    {
      $0.hop.currentEvent == .none ? $0.setDeadline(time($0.hop)) : $0.hop.setDeadline(time($0.hop))
    })
}

/// Converts milliseconds to nanoseconds. Instead of a number that would overflow, the result is the largest
/// number.
func nanoseconds(_ milliseconds: UInt64) -> UInt64 {
  let (product, overflow) = milliseconds.multipliedReportingOverflow(by: 1_000_000)
  return overflow ? UInt64.max : product
}

@_cdecl("penstock_request_compression") @implementation
public func penstock_request_compression(_ request: OpaquePointer!) -> UnsafePointer<CChar>! {
  settings(request).map { cString($0.compression.name) }
}

/// The compression that a program names; nil: there is none.
private func compression(_ name: ByteView) -> Compression? {
  guard let found = Compression(named: name) else { return ProgramCompressor.compression(named: name) }
  return bytesEqual(name, found.name) ? found : nil
}

@_cdecl("penstock_request_set_compression") @implementation
public func penstock_request_set_compression(_ request: OpaquePointer!, _ name: UnsafePointer<CChar>!)
  -> penstock_result
{
  guard let name, let compression = compression(bytes(name)) else { return fail(request, .invalidArgument) }
  guard compression != .zstd || Zstd.load() else { return fail(request, .unsupported) }
  return set(request, { $0.compression = compression }, options: { $0.compression = compression })
}

@_cdecl("penstock_request_max_receive_message_bytes") @implementation
public func penstock_request_max_receive_message_bytes(
  _ request: OpaquePointer!, _ bytes: UnsafeMutablePointer<Int>!
) -> penstock_result {
  tell(request, settings(request)?.maxReceiveBytes, bytes)
}

@_cdecl("penstock_request_set_max_receive_message_bytes") @implementation
public func penstock_request_set_max_receive_message_bytes(_ request: OpaquePointer!, _ n: Int)
  -> penstock_result
{
  guard let n = limit(n) else { return fail(request, .invalidArgument) }
  return set(request, { $0.maxReceiveBytes = n }, options: { $0.maxReceiveBytes = n })
}

@_cdecl("penstock_request_max_send_message_bytes") @implementation
public func penstock_request_max_send_message_bytes(
  _ request: OpaquePointer!, _ bytes: UnsafeMutablePointer<Int>!
) -> penstock_result {
  tell(request, settings(request)?.maxSendBytes, bytes)
}

@_cdecl("penstock_request_set_max_send_message_bytes") @implementation
public func penstock_request_set_max_send_message_bytes(_ request: OpaquePointer!, _ n: Int)
  -> penstock_result
{
  guard let n = limit(n) else { return fail(request, .invalidArgument) }
  return set(request, { $0.maxSendBytes = n }, options: { $0.maxSendBytes = n })
}

@_cdecl("penstock_request_idempotency") @implementation
public func penstock_request_idempotency(
  _ request: OpaquePointer!, _ idempotency: UnsafeMutablePointer<Int32>!
) -> penstock_result {
  tell(request, settings(request)?.idempotency.rawValue, idempotency)
}

@_cdecl("penstock_request_set_idempotency") @implementation
public func penstock_request_set_idempotency(_ request: OpaquePointer!, _ idempotency: Int32)
  -> penstock_result
{
  guard let wanted = Idempotency(rawValue: idempotency) else { return fail(request, .invalidArgument) }
  return set(request, { $0.idempotency = wanted }, options: { $0.idempotency = wanted })
}

@_cdecl("penstock_request_http_method") @implementation
public func penstock_request_http_method(_ handle: OpaquePointer!) -> UnsafePointer<CChar>! {
  switch start(handle) {
  case .nothing: nil
  case .running(let hop): cString(hop.httpMethod)
  case .request(let request, let call):
    cString((request.route?.rpc ?? call.origin.rpc).httpMethod(request.kind, request.settings))
  }
}

@_cdecl("penstock_request_allows_get") @implementation
public func penstock_request_allows_get(
  _ request: OpaquePointer!, _ allows: UnsafeMutablePointer<Int32>!
) -> penstock_result {
  tell(request, settings(request).map { $0.allowsGET ? 1 : 0 }, allows)
}

@_cdecl("penstock_request_set_allows_get") @implementation
public func penstock_request_set_allows_get(_ request: OpaquePointer!, _ allows: Int32) -> penstock_result {
  set(request, { $0.allowsGET = allows != 0 }, options: { $0.allowsGET = allows != 0 })
}

@_cdecl("penstock_request_content_subtype") @implementation
public func penstock_request_content_subtype(_ request: OpaquePointer!) -> UnsafePointer<CChar>! {
  labels(request).text {
    $0.contentType.map { type in
      cString(ByteView(rebasing: type.view.dropFirst(RequestLabels.contentTypeStart.utf8CodeUnitCount)))
    }
  }
}

@_cdecl("penstock_request_set_content_subtype") @implementation
public func penstock_request_set_content_subtype(_ request: OpaquePointer!, _ name: UnsafePointer<CChar>!)
  -> penstock_result
{
  guard let name else { return fail(request, .invalidArgument) }
  let subtype = bytes(name)
  guard subtype.isEmpty || HeaderRules.isValidName(subtype) else { return fail(request, .invalidArgument) }
  guard let type = RequestLabels.contentType(subtype) else { return fail(request, .noMemory) }
  return label(
    request, contentType: subtype.isEmpty ? nil : type, userAgent: labels(request).found?.userAgent)
}

@_cdecl("penstock_request_user_agent") @implementation
public func penstock_request_user_agent(_ request: OpaquePointer!) -> UnsafePointer<CChar>! {
  labels(request).text { $0.userAgent.map { cString($0) } }
}

@_cdecl("penstock_request_set_user_agent") @implementation
public func penstock_request_set_user_agent(_ request: OpaquePointer!, _ application: UnsafePointer<CChar>!)
  -> penstock_result
{
  guard let application else { return fail(request, .invalidArgument) }
  let name = bytes(application)
  guard name.isEmpty || HeaderRules.isValidASCIIValue(name) else { return fail(request, .invalidArgument) }
  let agent = ByteBuffer()
  guard UserAgent.compose(version: Version.bytes, application: name, into: agent), agent.append(byte: 0)
  else {
    return fail(request, .noMemory)
  }
  return label(
    request, contentType: labels(request).found?.contentType, userAgent: name.isEmpty ? nil : agent)
}

@_cdecl("penstock_request_wait_for_ready") @implementation
public func penstock_request_wait_for_ready(
  _ request: OpaquePointer!, _ wait: UnsafeMutablePointer<Int32>!
) -> penstock_result {
  tell(request, settings(request).map { $0.waitsForReady ? 1 : 0 }, wait)
}

@_cdecl("penstock_request_set_wait_for_ready") @implementation
public func penstock_request_set_wait_for_ready(_ request: OpaquePointer!, _ wait: Int32) -> penstock_result {
  set(request, { $0.waitsForReady = wait != 0 }, options: { $0.waitsForReady = wait != 0 })
}

@_cdecl("penstock_request_has_credentials") @implementation
public func penstock_request_has_credentials(
  _ request: OpaquePointer!, _ has: UnsafeMutablePointer<Int32>!
) -> penstock_result {
  tell(request, settings(request).map { $0.credentials == nil ? 0 : 1 }, has)
}

@_cdecl("penstock_request_set_credentials") @implementation
public func penstock_request_set_credentials(
  _ request: OpaquePointer!, _ authorization: UnsafePointer<CChar>!
)
  -> penstock_result
{
  let given = authorization.map { bytes($0) }
  return edit(
    request, { $0.setCredentials(given) },
    options: { options in
      options.credentials = nil
      return given.map { Request.withCredentials($0) { options.credentials = $0 } } ?? .ok
    })
}

// MARK: - The recorded messages

private func record(_ handle: OpaquePointer?, _ edit: (Cut, Hop) -> Outcome) -> penstock_result {
  if callOptions(handle) != nil || picker(handle) != nil { return fail(handle, .state) }
  return withHop(
    handle, { hop in hop.editRecord { edit($0, hop) } },
    { bound in
      let hop = bound.hop
      return hop.currentEvent == .none
        ? bound.editRecord { edit($0, hop) } : hop.editRecord { edit($0, hop) }
    })
}

@_cdecl("penstock_request_message") @implementation
public func penstock_request_message(
  _ handle: OpaquePointer!, _ index: Int, _ message: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let message else { return fail(handle, .invalidArgument) }
  return record(handle) { cut, hop in
    guard let shown = cut.message(at: index)?.fitting(hop.codec) else { return .notFound }
    message.pointee = retained(shown)
    return .ok
  }
}

@_cdecl("penstock_request_set_message") @implementation
public func penstock_request_set_message(
  _ handle: OpaquePointer!, _ index: Int, _ message: OpaquePointer!
) -> penstock_result {
  guard let message else { return fail(handle, .invalidArgument) }
  let given = object(message, Message.self)
  // After the exchange this is the old message, which is released after all locks.
  var own = given
  let result = record(handle) { cut, hop in
    guard let fitting = given.fitting(hop.codec) else { return hop.refuseForm() }
    own = fitting
    return cut.exchangeMessage(at: index, with: &own)
  }
  withExtendedLifetime(own) {}
  return result
}

@_cdecl("penstock_request_set_channel") @implementation
public func penstock_request_set_channel(_ handle: OpaquePointer!, _ channel: OpaquePointer!)
  -> penstock_result
{
  guard let channel else { return fail(handle, .invalidArgument) }
  if callOptions(handle) != nil || picker(handle) != nil { return fail(handle, .state) }
  let other = object(channel, ClientChannel.self)
  return withHop(handle) { Process.isForked(other.generation) ? .forked : other.take(over: $0) }
}

@_cdecl("penstock_request_prefer") @implementation
public func penstock_request_prefer(
  _ handle: OpaquePointer!, _ name: UnsafePointer<CChar>!, _ value: UnsafePointer<CChar>!, _ required: Int32
) -> penstock_result {
  var wish: EndpointWish?
  if let name {
    guard let value else { return fail(handle, .invalidArgument) }
    wish = EndpointWish(bytes(name), bytes(value), isRequired: required != 0)
    if wish == nil { return fail(handle, .noMemory) }
  }
  return edit(
    handle,
    {
      $0.setWish(wish)
      return .ok
    }, options: { _ in .state })
}
