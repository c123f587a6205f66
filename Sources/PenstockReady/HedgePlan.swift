import PenstockCall

/// Decides when the attempts of one hedged call are sent (gRFC A6, "Hedging Policy"). No I/O, no clock.
///
/// | event | then |
/// |---|---|
/// | an attempt has been sent | the next one is sent after the delay; without a delay at once |
/// | an attempt has failed, and the server has not said when to try again | the next one is sent at once |
/// | ... the server has named a time | the next one is sent after that time |
/// | ... the server wants no other attempt | no further one is sent; those that are open go on |
/// | the last open attempt has failed, and no other may follow | the call ends as that attempt did |
struct HedgePlan {
  enum Step: Equatable {
    /// The next attempt is to be sent now.
    case send
    /// The next attempt is to be sent after these nanoseconds, unless an attempt fails before.
    case wait(UInt64)
    /// Nothing is to be done until an attempt ends.
    case rest
    /// The call ends as the last attempt did.
    case give
  }

  /// How many attempts may be sent.
  private var most: Int
  /// In nanoseconds.
  private let delay: UInt64
  private(set) var sent = 0
  private var open = 0
  private var isStopped = false

  init(most: Int, delay: UInt64) {
    self.most = most
    self.delay = delay
  }

  var mayFollow: Bool { !isStopped && sent < most }

  /// Takes the next attempt's number, from 1. nil: none may follow.
  mutating func take() -> Int? {
    guard mayFollow else { return nil }
    sent += 1
    open += 1
    return sent
  }

  /// The attempt that was taken last has been sent.
  var afterSend: Step { mayFollow ? delay == 0 ? .send : .wait(delay) : .rest }

  mutating func failed(_ pushback: Pushback) -> Step {
    open -= 1
    if pushback == .never { isStopped = true }
    guard mayFollow else { return open == 0 ? .give : .rest }
    if case .after(let time) = pushback { return .wait(time) }
    return .send
  }

  /// The attempt that was taken last could not be made.
  mutating func notSent() -> Step {
    sent -= 1
    most -= 1
    return failed(.none)
  }

  /// No further attempt may follow, because most attempts have failed lately.
  mutating func stop() -> Step {
    isStopped = true
    return open == 0 ? .give : .rest
  }
}
