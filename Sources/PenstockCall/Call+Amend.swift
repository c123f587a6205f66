extension Call {
  /// While start stands at a hop, outside of that hop's callbacks; on the driving thread. nil: none.
  public func moveDeadline(to time: UInt64?) {
    guard phase == .live else { return }
    request.deadline = time
    loop.setDeadline(self, time)
  }
}

extension Hop {
  /// The object that keeps the interceptor's user data, for code that uses them longer than the call lives. In `create`.
  public var registered: (id: UInt64, userData: UserData) { (registration.id, registration.userData) }
}
