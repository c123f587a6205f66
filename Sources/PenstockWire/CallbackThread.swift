internal import CPenstockMemory

/// Counts the callbacks that run on each thread without driving a runtime: jobs of executors, and functions of
/// synchronous interceptors. It is here because the loop asks, too, and knows no calls. In full mode (not Embedded
/// Swift) the functions are never inlined, as those of `DrivingThread`: each object file that inlines them has a
/// separate count.
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
  public static var count: Int { Int(cm_in_callback()) }

  public static var isCurrent: Bool { count > 0 }
}
