internal import CPenstock
import Glibc

/// Runs a function of the C API that waits on a thread of its own, so that no thread of Swift's pool waits.
///
/// Only what is rare comes here: the end of a runtime or of a registration, and figures.
func waiting(
  _ act: String, _ limit: Duration?, _ body: @escaping @Sendable (Int64) -> penstock_result
) async throws {
  let milliseconds = limit.map { max(0, $0.milliseconds) } ?? -1
  let result = await withCheckedContinuation { continuation in
    let job = WaitingJob { continuation.resume(returning: body(milliseconds)) }
    if !job.start() { continuation.resume(returning: PENSTOCK_E_SYSTEM) }
  }
  try attempt(act) { _ in result }
}

/// Takes a text from a function of the C API that waits.
func waitingForText(
  _ act: String, _ limit: Duration?,
  _ body: @escaping @Sendable (Int64, inout UnsafeMutablePointer<CChar>?) -> penstock_result
) async throws -> String {
  let taken = Locked<String>("")
  try await waiting(act, limit) { milliseconds in
    var text: UnsafeMutablePointer<CChar>?
    let result = body(milliseconds, &text)
    guard let text else { return result }
    taken.withLock { $0 = String(cString: text) }
    penstock_free(text)
    return result
  }
  return taken.withLock { $0 }
}

private final class WaitingJob {
  private let body: @Sendable () -> Void
  init(_ body: @escaping @Sendable () -> Void) { self.body = body }

  /// False: there is no thread for it, and the body will not run.
  func start() -> Bool {
    var thread = pthread_t()
    let job = Unmanaged.passRetained(self)
    let result = pthread_create(
      &thread, nil,
      { argument in
        if let argument { Unmanaged<WaitingJob>.fromOpaque(argument).takeRetainedValue().body() }
        return nil
      }, job.toOpaque())
    guard result == 0 else {
      job.release()
      return false
    }
    pthread_detach(thread)
    return true
  }
}
