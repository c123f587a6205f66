import CPenstockSystem

/// Starts threads that belong to the library. Signals that are meant for the program are blocked on these
/// threads.
public enum OwnThread {
  public typealias Body = @convention(c) (UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer?

  /// Starts a thread that runs `body` with `owner`. The thread gets a reference to `owner`, which it has to
  /// release. Returns 0, or -errno; after an error no reference is retained.
  public static func start(_ owner: AnyObject, _ id: inout UInt64, detached: Bool, _ body: @escaping Body)
    -> Int32
  {
    let retained = Unmanaged.passRetained(owner)
    let failure = cs_thread_start(&id, detached ? 1 : 0, body, retained.toOpaque())
    if failure != 0 { retained.release() }
    return failure
  }
}
