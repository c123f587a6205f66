import CMemory

/// Counts the runtimes that each thread drives now. Functions that wait and belong to no runtime ask whether
/// the calling thread drives any. In the checked build the count also serves the check of references that
/// only the driver may count (Sources/CEmbedded/checks.c). A thread may drive one runtime in a callback of
/// another. In full mode the functions are never inlined, because each object file that inlines `cm_driven`
/// has a count of its own.
enum DrivingThread {
  #if hasFeature(Embedded)
    @inline(__always)
  #else
    @inline(never)
  #endif
  static func begin(_ runtime: Runtime) {
    _ = cm_driven(Unmanaged.passUnretained(runtime).toOpaque(), 1)
  }

  #if hasFeature(Embedded)
    @inline(__always)
  #else
    @inline(never)
  #endif
  static func end(_ runtime: Runtime) {
    _ = cm_driven(Unmanaged.passUnretained(runtime).toOpaque(), -1)
  }

  /// Notes that `runtime` has ended, so that no thread drives it any more. The thread that has ended it may
  /// then release its objects.
  @inline(never)
  static func over(_ runtime: Runtime) { _ = cm_driven(Unmanaged.passUnretained(runtime).toOpaque(), 0) }

  #if hasFeature(Embedded)
    @inline(__always)
  #else
    @inline(never)
  #endif
  static func isCurrent() -> Bool { cm_drives() > 0 }
}
