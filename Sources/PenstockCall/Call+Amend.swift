extension Call {
  /// Moves the deadline while start waits at a hop, outside of that hop's callbacks; on the driving thread. nil: no
  /// deadline.
  public func moveDeadline(to time: UInt64?) {
    guard phase == .live else { return }
    request.deadline = time
    loop.setDeadline(self, time)
  }
}

extension Hop {
  /// The interceptor's number and the object that keeps its user data, for code that uses them longer than the call
  /// lives. Called in `create`.
  public var registered: (id: UInt64, userData: UserData) { (registration.id, registration.userData) }
}

extension Hop {
  /// On the driving thread, of a status that waits here: makes ready for RESTART, which sends `start` where that is given. Gives
  /// the reason why there can be none; nil: it is possible.
  @inline(never) @_optimize(size)
  public func prepareRestart(_ status: Status, sending start: Request?) -> Refusal? {
    switch mayRestart(status) {
    case .ok:
      guard let start, let recorded = cut?.start else { return nil }
      return recorded.become(start) ? nil : .noMemory
    case .tooLarge: return .overReplayBytes
    case .already: return .restartsUsed
    case .unsupported: return .noCopies
    case .noMemory: return .noMemory
    default: return whyNoStart(status)
    }
  }
}
