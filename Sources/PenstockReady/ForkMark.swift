import PenstockLoop

/// Notices that this process is a forked child that has taken over its parent's handles. The owner guards it with its
/// lock.
struct ForkMark {
  private var forks = Process.forks

  /// Whether the process was forked since the object was made, or since the last call.
  mutating func hasForked() -> Bool {
    guard forks != Process.forks else { return false }
    forks = Process.forks
    return true
  }
}
