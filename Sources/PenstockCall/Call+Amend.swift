extension Call {
  /// Sets a new deadline while start waits at a hop, outside of that hop's callbacks. nil: no deadline. On
  /// the driving thread.
  public func moveDeadline(to time: UInt64?) {
    guard phase == .live else { return }
    request.deadline = time
    loop.setDeadline(self, time)
  }
}

extension Hop {
  /// The interceptor's registration number and the object that keeps its user data, for code that needs them
  /// after the call has ended. Read in `create`.
  public var registered: (id: UInt64, userData: UserData) { (registration.id, registration.userData) }
}

extension Hop {
  /// Prepares a RESTART in answer to `status`, which waits at this hop. If `start` is given, it is sent
  /// instead of the recorded one. Returns nil if the hop may restart, otherwise the reason why not. On the
  /// driving thread.
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
