extension Call {
  /// While start stands at a hop, outside of that hop's callbacks; on the driving thread. nil: none.
  public func moveDeadline(to time: UInt64?) {
    guard phase == .live else { return }
    request.deadline = time
    loop.setDeadline(self, time)
  }
}
