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
  /// Prepares a RESTART at the status that waits at this hop; `start`, if given, is sent instead of the recorded one.
  /// Returns the reason why the call can't begin again; nil: it can. On the driving thread.
  @inline(never) @_optimize(size)
  public func prepareRestart(_ status: Status, sending start: Request?) -> Refusal? {
    let outcome = mayRestart(status)
    guard outcome == .ok else {
      if outcome == .tooLarge { return .overReplayBytes }
      if outcome == .already { return .restartsUsed }
      if outcome == .unsupported { return .noCopies }
      return outcome == .noMemory ? .noMemory : whyNoStart(status)
    }
    guard let start, let recorded = cut?.start else { return nil }
    return recorded.become(start) ? nil : .noMemory
  }
}
