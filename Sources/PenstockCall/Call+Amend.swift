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
