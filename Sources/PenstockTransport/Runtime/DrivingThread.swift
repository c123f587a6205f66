import CSystem

/// Which threads drive a runtime now, whichever it is: for functions that wait and belong to none. A thread may drive
/// one runtime in a callback of another. Never inlined: the count is one only within this file.
enum DrivingThread {
  @inline(never)
  static func begin() { _ = cs_driven(1) }

  @inline(never)
  static func end() { _ = cs_driven(-1) }

  @inline(never)
  static func isCurrent() -> Bool { cs_driven(0) > 0 }
}
