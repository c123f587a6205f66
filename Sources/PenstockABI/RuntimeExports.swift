import CPenstockMemory
public import CPenstock
import CPenstockSystem
import PenstockJSON
import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockClient

// The functions of runtime.h.

/// The runtime of a handle. `ClientRuntime` counts its handles, so that it notices when the last one is
/// released, before the memory is freed.
private func runtime(_ handle: OpaquePointer) -> ClientRuntime { object(handle, ClientRuntime.self) }

/// Gives the caller a handle of the runtime, or the reason why none could be made.
func give(
  _ made: ClientRuntime.Made, _ out: UnsafeMutablePointer<OpaquePointer?>,
  _ error: UnsafeMutablePointer<OpaquePointer?>?
) -> penstock_result {
  switch made {
  case .made(let runtime):
    out.pointee = retained(runtime)
    return PENSTOCK_OK
  case .failed(let errno, let what): return systemFailure(errno, what).report(error)
  }
}

func systemFailure(_ errno: Int32, _ what: StaticString) -> Failure {
  let number = ByteBuffer()
  _ = appendDecimal(UInt64(errno.magnitude), to: number)
  let text = errnoText(errno)
  // The views of `text` and `number` do not keep their buffers, so the buffers are kept here until the
  // failure is made.
  return withExtendedLifetime((text, number)) {
    Failure(
      errno == ENOMEM ? .noMemory : .system, what.bytes, (": " as StaticString).bytes, text.view,
      (" (errno " as StaticString).bytes,
      number.view, (")" as StaticString).bytes)
  }
}

private func errnoText(_ errno: Int32) -> ByteBuffer {
  let text = ByteBuffer()
  if let spare = text.spare(atLeast: 128), let start = spare.baseAddress {
    let chars = start.assumingMemoryBound(to: CChar.self)
    cs_error_text(errno, chars, 128)
    text.commit(Int(strlen(chars)))
  }
  return text
}

@_cdecl("penstock_runtime_new") @implementation
public func penstock_runtime_new(
  _ options: UnsafePointer<CChar>!, _ out: UnsafeMutablePointer<OpaquePointer?>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let out else { return report(.invalidArgument, "runtime must not be NULL", error) }
  var parsed = Runtime.Options()
  if let options, let failure = JSONReader.parse(bytes(options), { read($0, into: &parsed) }) {
    return failure.report(error)
  }
  return give(ClientRuntime.make(parsed), out, error)
}

@_cdecl("penstock_runtime_default") @implementation
public func penstock_runtime_default(
  _ out: UnsafeMutablePointer<OpaquePointer?>!, _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let out else { return report(.invalidArgument, "runtime must not be NULL", error) }
  return give(ClientRuntime.shared(), out, error)
}

@_cdecl("penstock_runtime_retain") @implementation
public func penstock_runtime_retain(_ handle: OpaquePointer!) -> OpaquePointer! {
  if let handle { runtime(handle).addUser() }
  return retain(handle, ClientRuntime.self)
}

@_cdecl("penstock_runtime_release") @implementation
public func penstock_runtime_release(_ handle: OpaquePointer!) {
  if let handle { runtime(handle).removeUser() }
  release(handle, ClientRuntime.self)
}

/// Runs `body` on the runtime. A NULL handle, or one of another process, is an error.
private func with(_ handle: OpaquePointer?, _ body: (ClientRuntime) -> penstock_result) -> penstock_result {
  guard let handle else { return PENSTOCK_E_INVALID_ARGUMENT }
  let found = runtime(handle)
  return Process.isForked(found.generation) ? PENSTOCK_E_FORKED : body(found)
}

@_cdecl("penstock_runtime_fd") @implementation
public func penstock_runtime_fd(_ handle: OpaquePointer!, _ fd: UnsafeMutablePointer<Int32>!)
  -> penstock_result
{
  guard let fd else { return PENSTOCK_E_INVALID_ARGUMENT }
  return with(handle) { runtime in
    guard runtime.runtime.options.mode == .host else { return PENSTOCK_E_STATE }
    guard !runtime.isClosed else { return PENSTOCK_E_CLOSED }
    fd.pointee = runtime.runtime.pollableFD
    return PENSTOCK_OK
  }
}

@_cdecl("penstock_runtime_poll") @implementation
public func penstock_runtime_poll(_ handle: OpaquePointer!, _ timeout: Int64) -> penstock_result {
  with(handle) { runtime in
    switch runtime.runtime.poll(timeoutMilliseconds: timeout) {
    case .ok: PENSTOCK_OK
    case .busy: PENSTOCK_E_BUSY
    case .timedOut: PENSTOCK_E_TIMEOUT
    case .interrupted: PENSTOCK_E_INTERRUPTED
    case .closed: PENSTOCK_E_CLOSED
    case .notHost: PENSTOCK_E_STATE
    }
  }
}

@_cdecl("penstock_runtime_shutdown") @implementation
public func penstock_runtime_shutdown(_ handle: OpaquePointer!, _ timeout: Int64) -> penstock_result {
  with(handle) { runtime in
    switch runtime.shutdown(timeoutMilliseconds: timeout) {
    case .ok: PENSTOCK_OK
    case .timedOut: PENSTOCK_E_TIMEOUT
    case .wouldDeadlock: PENSTOCK_E_WOULD_DEADLOCK
    case .already: PENSTOCK_E_ALREADY
    }
  }
}

// MARK: - Interceptors

@_cdecl("penstock_runtime_add_interceptor") @implementation
public func penstock_runtime_add_interceptor(
  _ handle: OpaquePointer!, _ interceptor: UnsafePointer<penstock_interceptor>!, _ priority: Int32,
  _ id: UnsafeMutablePointer<penstock_interceptor_id>!, _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  let owner = handle.map { runtime($0) }
  return register(interceptor, id, error, owner, owner?.generation) {
    owner?.add($0, priority: priority) ?? .invalidArgument
  }
}

@_cdecl("penstock_runtime_interceptors_json") @implementation
public func penstock_runtime_interceptors_json(
  _ handle: OpaquePointer!, _ text: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>!
) -> penstock_result {
  guard let text else { return PENSTOCK_E_INVALID_ARGUMENT }
  return with(handle) { give($0.entries, text) }
}
