import CMemory

/// Counts the callbacks that run on each thread without driving a runtime: on executors, and as functions of
/// synchronous interceptors. In full mode (not Embedded Swift) the functions are never inlined, as those of
/// `DrivingThread`: each object file that inlines them has a separate count.
public enum CallbackThread {
  #if hasFeature(Embedded)
    @inline(__always)
  #else
    @inline(never)
  #endif
  public static func begin() { cm_callback(1) }

  #if hasFeature(Embedded)
    @inline(__always)
  #else
    @inline(never)
  #endif
  public static func end() { cm_callback(-1) }

  #if hasFeature(Embedded)
    @inline(__always)
  #else
    @inline(never)
  #endif
  public static var isCurrent: Bool { cm_in_callback() != 0 }
}
