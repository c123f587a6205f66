import CPenstockMemory
import CPenstock
import PenstockJSON
import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockLink
import PenstockClient

// Reads a penstock_interceptor, registers it, and lists the registered interceptors.

/// A penstock_interceptor as this version knows it: the fields that an older, smaller table does not have are
/// zero. `userData` takes over the user data, also if the table is refused. Only if struct_size is too small,
/// the user data stays with the caller.
struct InterceptorTable {
  var table = penstock_interceptor()
  let userData: UserData?
  let failure: Failure?

  init(_ given: UnsafePointer<penstock_interceptor>?) {
    switch readTable(given, "interceptor") {
    case .refused(let refused): (userData, failure) = (nil, refused)
    case .read(let read):
      table = read
      userData = UserData(table.user_data, table.finalizer)
      failure = InterceptorTable.fault(in: table)
    }
  }

  /// Why this version refuses the table; nil: it does not.
  private static func fault(in table: penstock_interceptor) -> Failure? {
    if let failure = table.faultSinceFilled { return failure }
    if Level(rawValue: table.level) == nil {
      return Failure(.unsupported, "interceptor.level: expected PENSTOCK_LEVEL_...")
    }
    if table.headers_wait > 15, table.headers_wait != UInt64(PENSTOCK_HEADERS_PASS) {
      return Failure(
        .invalidArgument,
        "interceptor.headers_wait: expected a mask of (1 << PENSTOCK_KIND_...) or PENSTOCK_HEADERS_PASS")
    }
    if table.per_attempt > 1 {
      return Failure(.unsupported, "interceptor.per_attempt: expected 0 or 1")
    }
    if table.per_attempt == 0, table.on_pick != nil {
      return Failure(.invalidArgument, "interceptor.on_pick: expected per_attempt to be 1")
    }
    if table.per_attempt == 1, table.level == PENSTOCK_LEVEL_OBJECT {
      return Failure(.invalidArgument, "interceptor.per_attempt: expected 0 with PENSTOCK_LEVEL_OBJECT")
    }
    if table.per_attempt == 1, table.level == PENSTOCK_LEVEL_BYTES, table.replay_bytes != 0 {
      return Failure(
        .invalidArgument,
        "interceptor.replay_bytes: expected 0 with per_attempt, because each attempt has a new hop")
    }
    return nil
  }

  func registration(on owner: RegistrationOwner) -> (Registration?, Failure?) {
    if let failure { return (nil, failure) }
    let outbound = table.outbound_executor.map { object($0, HostExecutor.self) }
    let inbound = table.inbound_executor.map { object($0, HostExecutor.self) }
    if outbound?.isForked ?? false || inbound?.isForked ?? false {
      return (nil, Failure(.forked, "an executor belongs to the parent of this process"))
    }
    guard let userData else { return (nil, Failure(.invalidArgument, "interceptor must not be NULL")) }
    let name = ByteBuffer()
    if let given = table.name, !UTF8Repair.repair(bytes(given), into: name) {
      return (nil, Failure(.noMemory, "no memory"))
    }
    guard name.append(byte: 0) else { return (nil, Failure(.noMemory, "no memory")) }
    let (filter, refused) = CallFilter.read(table.methods, table.kinds)
    if let refused { return (nil, refused) }
    var callbacks = Registration.Callbacks()
    callbacks.create = table.create
    callbacks.destroy = table.destroy
    callbacks.onStart = table.on_start
    callbacks.onSend = table.on_send
    callbacks.onHalfClose = table.on_half_close
    callbacks.onHeaders = table.on_headers
    callbacks.onReceive = table.on_receive
    callbacks.onStatus = table.on_status
    callbacks.onCancel = table.on_cancel
    callbacks.onDemand = table.on_demand
    callbacks.onSent = table.on_sent
    callbacks.onConnection = table.on_connection.map { unsafeBitCast($0, to: ConnectionCallback.self) }
    callbacks.onPick = table.on_pick
    return (
      Registration(
        id: Registrations.begin(userData, name, of: owner), name: name, filter: filter.methods,
        kinds: filter.kinds,
        level: Level(rawValue: table.level) ?? .bytes, isPerAttempt: table.per_attempt != 0,
        holdBytes: limit(table.hold_bytes), userData: userData, callbacks: callbacks,
        replayBytes: limit(table.replay_bytes),
        maxRestarts: table.max_restarts == 0 ? 1 : Int(clamping: table.max_restarts),
        headersWait: headersWait(table.headers_wait),
        outboundExecutor: outbound, inboundExecutor: inbound), nil
    )
  }
}

/// The kinds of calls in which headers wait, as a mask of 1 << kind.
private func headersWait(_ given: UInt64) -> UInt32 {
  given == 0
    ? Registration.defaultHeadersWait : UInt32(truncatingIfNeeded: given & ~UInt64(PENSTOCK_HEADERS_PASS))
}

/// A size_t arrives as an Int: SIZE_MAX, which often means "no limit", must not count as a negative number.
private func limit(_ size: Int) -> Int { size < 0 ? Int.max : size }

extension CallFilter {
  /// Reads which calls an interceptor wants. `methods` has patterns separated by commas, or is NULL for all
  /// methods. `kinds` is a mask of the kinds of call, or 0 for all kinds.
  static func read(_ methods: UnsafePointer<CChar>?, _ kinds: UInt32) -> (CallFilter, Failure?) {
    guard kinds & ~0xf == 0 else {
      return (
        CallFilter(),
        Failure(.invalidArgument, "interceptor.kinds: expected a mask of (1 << PENSTOCK_KIND_...)")
      )
    }
    guard let methods else { return (CallFilter(kinds: kinds), nil) }
    guard let copied = ByteBuffer(copying: bytes(methods)) else {
      return (CallFilter(), Failure(.noMemory, "no memory"))
    }
    guard let patterns = MethodFilter(copied) else {
      return (
        CallFilter(),
        Failure(
          .invalidArgument,
          ("interceptor.methods: expected methods (\"/package.Service/Method\"), or their beginnings followed by one "
            as StaticString).bytes,
          ("star (\"/package.Service/*\"), separated by commas, got '" as StaticString).bytes, bytes(methods),
          ("'" as StaticString).bytes)
      )
    }
    return (CallFilter(patterns, kinds: kinds), nil)
  }
}

/// Registers an interceptor with `owner`. The library takes over the table's user data, also on error. Only
/// if struct_size is too small, the user data stays with the caller.
func register(
  _ interceptor: UnsafePointer<penstock_interceptor>?, _ id: UnsafeMutablePointer<penstock_interceptor_id>?,
  _ error: UnsafeMutablePointer<OpaquePointer?>?, _ owner: RegistrationOwner?, _ generation: UInt64?,
  _ add: (Registration) -> Outcome
) -> penstock_result {
  let table = InterceptorTable(interceptor)
  guard let owner, let generation, let id else {
    return report(.invalidArgument, "the handle and id must not be NULL", error)
  }
  if Process.isForked(generation) {
    return report(.forked, "the handle belongs to the parent of this process", error)
  }
  let (registration, failure) = table.registration(on: owner)
  guard let registration else { return failure?.report(error) ?? PENSTOCK_E_NO_MEMORY }
  let outcome = add(registration)
  guard outcome == .ok else {
    return report(
      outcome, outcome == .closed ? "the channel or its runtime has been closed" : outcome.name, error)
  }
  id.pointee = registration.id
  return PENSTOCK_OK
}

/// Gives the caller the list of interceptors as JSON, in the order of the chain. An interceptor with several
/// hops is listed at the place of its first hop.
func give(
  _ entries: [Registry.Entry], _ text: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
) -> penstock_result {
  let list = JSON.array { list in
    for entry in entries where entry.registration.level != .bytes { list.append(json(entry)) }
    for isPerAttempt in [false, true] {
      for entry in entries
      where entry.registration.level == .bytes && entry.registration.isPerAttempt == isPerAttempt {
        list.append(json(entry))
      }
    }
  }
  guard let made = JSON.dump(list) else { return PENSTOCK_E_NO_MEMORY }
  text.pointee = made
  return PENSTOCK_OK
}

private func json(_ entry: Registry.Entry) -> JSON.Value? {
  let registration = entry.registration
  return JSON.object { object in
    object.set("id", JSON.int(registration.id))
    object.set("name", JSON.string(ByteView(rebasing: registration.name.view.dropLast())))
    object.set("priority", JSON.int(Int(entry.priority)))
    object.set("place", JSON.string(entry.scope.name))
    object.set("level", JSON.string(registration.level.name))
    object.set("per", JSON.string(registration.isPerAttempt ? "attempt" : "call"))
    object.set("methods", JSON.string(entry.filter.methods.text?.view ?? ("*" as StaticString).bytes))
    object.set(
      "kinds",
      JSON.array { kinds in
        for (kind, name) in kindNames where entry.filter.kinds & (1 << kind) != 0 {
          kinds.append(JSON.string(name))
        }
      })
    let calls = registration.calls
    object.set("calls_in_flight", JSON.int(calls.inFlight))
    object.set("calls_seen", JSON.int(calls.seen))
  }.value
}

private var kindNames: [(UInt32, StaticString)] {
  [(0, "unary"), (1, "client_stream"), (2, "server_stream"), (3, "bidi")]
}

extension Registry.Scope {
  fileprivate var name: StaticString {
    switch self {
    case .runtime: "runtime"
    case .channel: "channel"
    case .call: "call"
    }
  }
}

extension Level {
  fileprivate var name: StaticString {
    switch self {
    case .bytes: "bytes"
    case .object: "object"
    case .both: "both"
    }
  }
}
