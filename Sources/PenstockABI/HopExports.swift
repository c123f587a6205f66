import CPenstockMemory
public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockLink
import PenstockHTTP
import PenstockClient
import PenstockTickets

// The functions of hop.h for a hop and its event, except those that use messages.

/// The hop of a handle, for functions for which the event does not matter.
func hop(_ handle: OpaquePointer?) -> Hop? { handle.map { HopHandle.referent($0).hop } }

/// Looks something up for the event of a handle. If it is the handle of a hop, `running` is called, for the
/// event of the running callback. If it is the handle of a waiting event (`BoundHop`), `bound` is called.
func find<T>(_ handle: OpaquePointer?, _ running: (Hop) -> T?, _ bound: (BoundHop) -> T?) -> T? {
  guard let handle else { return nil }
  switch HopHandle.referent(handle) {
  case .running(let hop): return running(hop)
  case .bound(let hop): return bound(hop)
  }
}

func withHop(_ handle: OpaquePointer?, _ body: (Hop) -> Outcome) -> penstock_result {
  withHop(handle, body, { body($0.hop) })
}

/// The result of a function that fails before it comes to the hop of `handle`.
func fail(_ handle: OpaquePointer?, _ outcome: Outcome) -> penstock_result {
  if let handle { look(handle, HopHandle.self) { $0.forgetRefusal() } }
  return outcome.rawValue
}

/// Calls `running` if the handle is that of a hop, or `bound` if it is that of a waiting event (`BoundHop`).
/// A NULL handle, or one of another process, is an error. Every function that can give E_STATE calls this or
/// `fail`.
func withHop(_ handle: OpaquePointer?, _ running: (Hop) -> Outcome, _ bound: (BoundHop) -> Outcome)
  -> penstock_result
{
  guard let handle else { return PENSTOCK_E_INVALID_ARGUMENT }
  let referent = HopHandle.referent(handle)
  referent.hop.forgetRefusal()
  look(handle, HopHandle.self) { $0.forgetRefusal() }
  if referent.hop.isForked { return PENSTOCK_E_FORKED }
  switch referent {
  case .running(let hop): return running(hop).rawValue
  case .bound(let hop):
    let outcome = bound(hop)
    if outcome == .state { hop.noteRefusal() }
    return outcome.rawValue
  }
}

@_cdecl("penstock_hop_why") @implementation
public func penstock_hop_why(_ handle: OpaquePointer!) -> UnsafePointer<CChar>! {
  cString((find(handle, { $0.why }, { $0.why }) ?? .none).text)
}

@_cdecl("penstock_hop_retain") @implementation
public func penstock_hop_retain(_ handle: OpaquePointer!) -> OpaquePointer! {
  if let handle {
    switch HopHandle.referent(handle) {
    case .running(let hop): if !hop.isForked { hop.becomeShared() }
    case .bound(let bound): if !bound.hop.isForked { bound.becomeShared() }
    }
  }
  return retain(handle, HopHandle.self)
}

@_cdecl("penstock_hop_release") @implementation
public func penstock_hop_release(_ handle: OpaquePointer!) { release(handle, HopHandle.self) }

@_cdecl("penstock_hop_event") @implementation
public func penstock_hop_event(_ handle: OpaquePointer!) -> Int32 {
  find(handle, { $0.currentEvent }, { $0.event })?.rawValue ?? PENSTOCK_EVENT_NONE
}

@_cdecl("penstock_hop_call_id") @implementation
public func penstock_hop_call_id(_ handle: OpaquePointer!) -> UInt64 { hop(handle)?.call.id ?? 0 }

@_cdecl("penstock_hop_kind") @implementation
public func penstock_hop_kind(_ handle: OpaquePointer!) -> Int32 {
  hop(handle)?.call.request.kind.rawValue ?? -1
}

@_cdecl("penstock_hop_level") @implementation
public func penstock_hop_level(_ handle: OpaquePointer!) -> Int32 {
  hop(handle).map { Int32($0.level.rawValue) } ?? -1
}

@_cdecl("penstock_hop_attempt") @implementation
public func penstock_hop_attempt(_ handle: OpaquePointer!) -> UInt32 { hop(handle)?.attempt ?? 0 }

@_cdecl("penstock_hop_request") @implementation
public func penstock_hop_request(_ handle: OpaquePointer!) -> OpaquePointer! {
  // The handle of a hop is also the handle of its request. What it shows as the request depends on how far
  // the hop has come.
  handle
}

@_cdecl("penstock_hop_can_restart") @implementation
public func penstock_hop_can_restart(_ handle: OpaquePointer!) -> penstock_result {
  withHop(handle) { $0.canRestart }
}

@_cdecl("penstock_hop_set_executors") @implementation
public func penstock_hop_set_executors(
  _ handle: OpaquePointer!, _ outbound: OpaquePointer!, _ inbound: OpaquePointer!
) -> penstock_result {
  let outbound = outbound.map { object($0, HostExecutor.self) }
  let inbound = inbound.map { object($0, HostExecutor.self) }
  if outbound?.isForked ?? false || inbound?.isForked ?? false { return fail(handle, .forked) }
  return withHop(handle) { $0.chooseExecutors(outbound, inbound) }
}

@_cdecl("penstock_hop_is_secure") @implementation
public func penstock_hop_is_secure(_ handle: OpaquePointer!) -> Int32 {
  hop(handle).map { $0.privacy == .cleartext ? 0 : 1 } ?? 0
}

@_cdecl("penstock_hop_protocol") @implementation
public func penstock_hop_protocol(_ handle: OpaquePointer!) -> UnsafePointer<CChar>! {
  hop(handle).map { cString($0.rpc.name) }
}

@_cdecl("penstock_hop_target") @implementation
public func penstock_hop_target(_ handle: OpaquePointer!) -> UnsafePointer<CChar>! {
  hop(handle).map { cString($0.target) }
}

@_cdecl("penstock_hop_address") @implementation
public func penstock_hop_address(_ handle: OpaquePointer!) -> UnsafePointer<CChar>! {
  hop(handle)?.picked().map { cString($0) }
}

@_cdecl("penstock_hop_address_attribute") @implementation
public func penstock_hop_address_attribute(_ handle: OpaquePointer!, _ name: UnsafePointer<CChar>!)
  -> UnsafePointer<CChar>!
{
  guard let name else { return nil }
  return hop(handle)?.picked(bytes(name)).map { cString($0) }
}

@_cdecl("penstock_hop_metadata") @implementation
public func penstock_hop_metadata(_ handle: OpaquePointer!) -> OpaquePointer! {
  find(handle, { $0.metadata }, { $0.metadata }).map { borrowed($0) }
}

@_cdecl("penstock_hop_status") @implementation
public func penstock_hop_status(_ handle: OpaquePointer!) -> OpaquePointer! {
  find(handle, { $0.status }, { $0.status }).map { borrowed($0) }
}

@_cdecl("penstock_hop_count") @implementation
public func penstock_hop_count(_ handle: OpaquePointer!) -> UInt64 {
  UInt64(clamping: hop(handle)?.signalCount ?? 0)
}

@_cdecl("penstock_hop_set_count") @implementation
public func penstock_hop_set_count(_ handle: OpaquePointer!, _ n: UInt64) -> penstock_result {
  withHop(handle) { $0.setSignalCount(clamped(n)) }
}

/// Limits a demand to 2^40 messages, so that the sum of many demands does not overflow an Int.
func clamped(_ n: UInt64) -> Int { Int(min(n, 1 << 40)) }

// MARK: - Ending, injecting, answering

/// A status with this code and message. The status is nil if the code is outside 0-16, or if there is no
/// memory for the message.
func status(_ code: Int32, _ message: UnsafePointer<CChar>?) -> (Status?, Outcome) {
  guard let code = StatusCode(rawValue: code) else { return (nil, .invalidArgument) }
  let made = Status(code)
  if let message, !made.setMessage(bytes(message)) { return (nil, .noMemory) }
  return (made, .ok)
}

@_cdecl("penstock_hop_end") @implementation
public func penstock_hop_end(_ handle: OpaquePointer!, _ code: Int32, _ message: UnsafePointer<CChar>!)
  -> penstock_result
{
  let (made, outcome) = status(code, message)
  guard let made else { return fail(handle, outcome) }
  return withHop(handle, { $0.finish(made) }, { $0.end(made) })
}

@_cdecl("penstock_hop_end_with") @implementation
public func penstock_hop_end_with(_ handle: OpaquePointer!, _ status: OpaquePointer!) -> penstock_result {
  guard let status else { return fail(handle, .invalidArgument) }
  let made = object(status, Status.self).copy()
  return withHop(handle, { $0.finish(made) }, { $0.end(made) })
}

@_cdecl("penstock_hop_next") @implementation
public func penstock_hop_next(_ handle: OpaquePointer!) -> penstock_result {
  withHop(handle, { $0.hasEnded ? .gone : $0.refuse(.notSynchronous) }, { $0.next() })
}

@_cdecl("penstock_hop_resolve") @implementation
public func penstock_hop_resolve(_ handle: OpaquePointer!, _ verdict: Int32) -> penstock_result {
  guard let verdict = Verdict(rawValue: verdict) else { return fail(handle, .invalidArgument) }
  return withHop(handle, { $0.hasEnded ? .gone : $0.refuse(.ownHandle) }, { $0.resolve(verdict) })
}

@_cdecl("penstock_hop_deliver_headers") @implementation
public func penstock_hop_deliver_headers(_ handle: OpaquePointer!, _ headers: OpaquePointer!)
  -> penstock_result
{
  guard let copied = headers.map({ object($0, Metadata.self).copy() }) ?? Metadata() else {
    return fail(handle, .noMemory)
  }
  return withHop(handle, { $0.deliverHeaders(copied) }, { $0.deliver(copied) })
}

@_cdecl("penstock_hop_deliver_status") @implementation
public func penstock_hop_deliver_status(_ handle: OpaquePointer!, _ status: OpaquePointer!) -> penstock_result
{
  guard let status else { return fail(handle, .invalidArgument) }
  let made = object(status, Status.self).copy()
  return withHop(handle, { $0.deliverStatus(made) }, { $0.deliver(made) })
}

@_cdecl("penstock_hop_half_close") @implementation
public func penstock_hop_half_close(_ handle: OpaquePointer!) -> penstock_result {
  withHop(handle) { $0.halfClose() }
}

@_cdecl("penstock_hop_demand") @implementation
public func penstock_hop_demand(_ handle: OpaquePointer!, _ n: UInt64) -> penstock_result {
  withHop(handle) { $0.demand(clamped(n)) }
}

// MARK: - Values

@_cdecl("penstock_hop_set_value") @implementation
public func penstock_hop_set_value(
  _ handle: OpaquePointer!, _ key: UnsafePointer<CChar>!, _ value: UnsafeMutableRawPointer!,
  _ finalizer: penstock_finalizer!
) -> penstock_result {
  let data = value.map { UserData($0, finalizer) }
  guard let key else { return fail(handle, .invalidArgument) }
  return withHop(handle, { $0.setValue(bytes(key), data) }, { $0.setValue(bytes(key), data) })
}

@_cdecl("penstock_hop_value") @implementation
public func penstock_hop_value(_ handle: OpaquePointer!, _ key: UnsafePointer<CChar>!)
  -> UnsafeMutableRawPointer!
{
  guard let key, let hop = hop(handle), !hop.isForked else { return nil }
  return find(handle, { $0.value(bytes(key)) }, { $0.value(bytes(key)) })
}

@_cdecl("penstock_hop_context") @implementation
public func penstock_hop_context(_ handle: OpaquePointer!) -> UnsafeMutableRawPointer! {
  guard let hop = hop(handle), !hop.isForked else { return nil }
  return find(handle, { $0.context }, { $0.context })
}

// MARK: - Tickets

@_cdecl("penstock_hop_ticket") @implementation
public func penstock_hop_ticket(_ handle: OpaquePointer!) -> penstock_ticket {
  find(
    handle, { $0.isForked ? 0 : $0.takeTicket() }, { $0.hop.isForked ? 0 : $0.takeTicket() }) ?? 0
}

@_cdecl("penstock_ticket_resolve") @implementation
public func penstock_ticket_resolve(_ ticket: penstock_ticket, _ verdict: Int32) -> penstock_result {
  guard let verdict = Verdict(rawValue: verdict), verdict != .pause, verdict != .hold else {
    return PENSTOCK_E_INVALID_ARGUMENT
  }
  return Tickets.resolve(ticket, .verdict(verdict)).rawValue
}

@_cdecl("penstock_ticket_end") @implementation
public func penstock_ticket_end(
  _ ticket: penstock_ticket, _ code: Int32, _ message: UnsafePointer<CChar>!
) -> penstock_result {
  let (made, outcome) = status(code, message)
  guard let made else { return outcome.rawValue }
  return Tickets.resolve(ticket, .finish(made)).rawValue
}

@_cdecl("penstock_ticket_end_with") @implementation
public func penstock_ticket_end_with(_ ticket: penstock_ticket, _ status: OpaquePointer!)
  -> penstock_result
{
  guard let status else { return PENSTOCK_E_INVALID_ARGUMENT }
  return Tickets.resolve(ticket, .finish(object(status, Status.self).copy())).rawValue
}

@_cdecl("penstock_ticket_resolve_after") @implementation
public func penstock_ticket_resolve_after(_ ticket: penstock_ticket, _ verdict: Int32, _ ms: UInt64)
  -> penstock_result
{
  guard let verdict = Verdict(rawValue: verdict), verdict != .pause, verdict != .hold else {
    return PENSTOCK_E_INVALID_ARGUMENT
  }
  return Tickets.resolveAfter(ticket, .verdict(verdict), nanoseconds: nanoseconds(ms)).rawValue
}

@_cdecl("penstock_ticket_hop") @implementation
public func penstock_ticket_hop(_ ticket: penstock_ticket, _ hop: UnsafeMutablePointer<OpaquePointer?>!)
  -> penstock_result
{
  guard let hop else { return PENSTOCK_E_INVALID_ARGUMENT }
  let (outcome, found) = Tickets.hop(ticket)
  if let found { hop.pointee = retained(found) }
  return outcome.rawValue
}
