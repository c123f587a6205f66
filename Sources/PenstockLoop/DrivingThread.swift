import CPenstockMemory

/// Counts the runtimes that each thread drives now, that is, whose event loops it runs. A blocking function
/// that belongs to no runtime asks here whether the calling thread drives any runtime. In the checked build
/// the count also serves the check of references that only the driving thread may count
/// (Sources/CPenstockEmbedded/checks.c). The count may be above 1, because a callback of one runtime may drive
/// another runtime. In full mode (not Embedded Swift) the functions are never inlined: each object file that
/// inlines `cm_driven` has a separate count.
public enum DrivingThread {
  #if hasFeature(Embedded)
    @inline(__always)
  #else
    @inline(never)
  #endif
  public static func begin(_ runtime: Runtime) {
    _ = cm_driven(Unmanaged.passUnretained(runtime).toOpaque(), 1)
  }

  #if hasFeature(Embedded)
    @inline(__always)
  #else
    @inline(never)
  #endif
  public static func end(_ runtime: Runtime) {
    _ = cm_driven(Unmanaged.passUnretained(runtime).toOpaque(), -1)
  }

  /// Notes that `runtime` has ended, so that no thread drives it any more. The calling thread, which has
  /// ended the runtime, may then release the runtime's objects.
  public static func over(_ runtime: Runtime) {
    _ = cm_driven(Unmanaged.passUnretained(runtime).toOpaque(), 0)
  }

  #if hasFeature(Embedded)
    @inline(__always)
  #else
    @inline(never)
  #endif
  public static func isCurrent() -> Bool { cm_drives() > 0 }
}
