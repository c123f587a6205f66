import PenstockCall
import PenstockLoop
import PenstockWire

/// Cancels any number of calls at once, from any thread: those that run, and those that begin later. A call
/// has the scope of the options that it was made with.
public final class CancelScope: @unchecked Sendable {
  public let generation = Process.generation

  /// The lock guards `running`, `reason`, and the `placeInScope` of each call in `running`.
  private let lock = Lock()
  /// The calls that have begun and have not ended. A call leaves the list before it is freed.
  private var running: [Unmanaged<ClientCall>] = []
  /// The text for the status of the cancelled calls; nil: the scope has not been cancelled.
  private var reason: ByteBuffer?

  public init() {}

  /// Called once for each call, before the loop runs it. From now until `ended`, `cancel` cancels the call.
  /// False: the scope was cancelled before, and the first input of the call ends it.
  func began(_ call: ClientCall) -> Bool {
    let reason = lock.withLock {
      call.placeInScope = running.count
      running.append(.passUnretained(call))
      return self.reason
    }
    guard let reason else { return true }
    call.call.submit(.endLocally(Status(.cancelled, reason.view)))
    return false
  }

  /// Called when a call that has begun has ended; a second time does nothing.
  func ended(_ call: ClientCall) {
    lock.withLock {
      guard let place = call.placeInScope else { return }
      call.placeInScope = nil
      let last = running.removeLast()
      guard place < running.count else { return }
      last._withUnsafeGuaranteedRef { $0.placeInScope = place }
      running[place] = last
    }
  }

  /// Cancels the calls that run, and all calls that begin later. Any thread. Only the first `cancel` has an
  /// effect.
  public func cancel(_ reason: ByteView) -> Outcome {
    if Process.isForked(generation) { return .forked }
    guard let copied = ByteBuffer(copying: reason) else { return .noMemory }
    var calls: [Call] = []
    let isFirst = lock.withLock {
      guard self.reason == nil else { return false }
      self.reason = copied
      calls = running.map { $0._withUnsafeGuaranteedRef { $0.call } }
      return true
    }
    for call in calls { call.submit(.endLocally(Status(.cancelled, reason))) }
    return isFirst ? .ok : .already
  }
}
