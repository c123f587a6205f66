import CSystem

/// Starts threads of the library's own. They get no signal that is meant for the program.
enum OwnThread {
  typealias Body = @convention(c) (UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer?

  /// Starts a thread that runs `body` with `owner`, to which the thread gets a reference of its own. Returns 0, or
  /// -errno; then no reference is kept.
  @inline(never) @_optimize(size)
  static func start(_ owner: AnyObject, _ id: inout pthread_t, detached: Bool, _ body: @escaping Body)
    -> Int32
  {
    let kept = Unmanaged.passRetained(owner)
    let failure = cs_thread_start(&id, detached ? 1 : 0, body, kept.toOpaque())
    if failure != 0 { kept.release() }
    return failure
  }
}
