import Synchronization

/// How the wait of a function of a synchronous interceptor is interrupted, on the thread that waits for an interruptible
/// call. Only such calls with hops have it.
final class FunctionInterruption {
  /// The function that the options have set. It is kept, because the options need not live as long as the call.
  private let asked: CallOptions.OnInterrupted?
  private let ends = Atomic<Bool>(false)

  init(_ asked: CallOptions.OnInterrupted?) { self.asked = asked }

  /// Whether an interruption of a function has cancelled the call.
  var hasEnded: Bool { ends.load(ordering: .acquiring) }

  /// Whether a function's wait is interruptible: only if the program can be asked there whether to go on, or has said by
  /// `unary` that it need not be asked.
  func applies(to call: ClientCall) -> Bool { call.hasNoHandle || asked != nil }

  /// Called when an interruption has ended such a wait. False: the call was cancelled for it.
  func goesOn(_ call: ClientCall) -> Bool {
    if hasEnded { return false }
    if call.goesOn(asked) { return true }
    ends.store(true, ordering: .releasing)
    return false
  }
}
