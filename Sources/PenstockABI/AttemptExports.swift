public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockClient

// The facts of the attempt that a request belongs to (request.h).

/// A fact of the attempt for which the handle shows the request; nil if it shows none. A request of call options has
/// `before`.
private func attempt<T>(_ handle: OpaquePointer?, before: T, _ fact: (Request) -> T) -> T? {
  if callOptions(handle) != nil { return before }
  switch start(handle) {
  case .nothing: return nil
  case .running(let hop): return fact(hop.call.request)
  case .request(let request, _): return fact(request)
  }
}

@_cdecl("penstock_request_previous_attempts") @implementation
public func penstock_request_previous_attempts(
  _ request: OpaquePointer!, _ count: UnsafeMutablePointer<UInt32>!
) -> penstock_result {
  tell(request, attempt(request, before: 0) { UInt32($0.previousAttempts) }, count)
}

@_cdecl("penstock_request_is_transparent_retry") @implementation
public func penstock_request_is_transparent_retry(
  _ request: OpaquePointer!, _ isRetry: UnsafeMutablePointer<Int32>!
) -> penstock_result {
  tell(request, attempt(request, before: 0) { $0.isTransparentRetry ? 1 : 0 }, isRetry)
}
