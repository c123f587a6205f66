import PenstockWire

// What may be done to a start that stands at a hop, outside of that hop's callbacks. The driving thread only.

extension Call {
  /// nil: none.
  public func moveDeadline(to time: UInt64?) {
    guard phase == .live else { return }
    request.deadline = time
    loop.setDeadline(self, time)
  }

  /// What any callback of the call could set.
  public func setValue(_ key: ByteView, _ value: UserData?) -> Bool { values.set(key, value) }
}
