import CSystem
import Synchronization

/// The state of this process as a whole, in one page that `fork` wipes: a child reads zeros, and so finds its
/// globals fresh and every lock free, regardless of the locks that the parent's threads held at that moment.
///
/// The generation tells processes apart: a handle keeps the one it was made under, and a child's differs from those
/// of all its ancestors, the only processes from which it can have inherited handles.
public enum Process {
  private struct Page: ~Copyable {
    let generation: Atomic<UInt64>
    let sequence: Atomic<UInt64>
    let lock: Lock
  }

  /// The address of the page. A forked child has the same address, but its page is wiped.
  private static let page = Atomic<UInt>(0)
  /// The newest generation that this process or an ancestor has taken. It is outside of the page, so that a child
  /// goes on counting from there.
  private static let newest = Atomic<UInt64>(0)

  private static let size = 4096
  private static let slotsOffset = 256
  public static let slotCount = 16

  private static var pointer: UnsafePointer<Page> {
    let address = page.load(ordering: .acquiring)
    let raw = UnsafeRawPointer(bitPattern: address) ?? create()
    return raw.assumingMemoryBound(to: Page.self)
  }

  @inline(never)
  private static func create() -> UnsafeRawPointer {
    // Only the page tells a child from its parent. If the kernel can't wipe a page on fork (before 4.14), the page is
    // static memory, and a fork handler wipes it.
    let mapped = cs_wiped_page(size)
    let fresh: UnsafeMutableRawPointer = mapped ?? cs_spare_page()
    let (exchanged, original) = page.compareExchange(
      expected: 0, desired: UInt(bitPattern: fresh), ordering: .acquiringAndReleasing)
    if exchanged {
      if mapped == nil {
        _ = pthread_atfork(nil, nil) {
          if let p = UnsafeMutableRawPointer(bitPattern: Process.page.load(ordering: .relaxed)) {
            memset(p, 0, Process.size)
          }
        }
      }
      return UnsafeRawPointer(fresh)
    }
    if let mapped { munmap(mapped, size) }
    return UnsafeRawPointer(bitPattern: original) ?? UnsafeRawPointer(fresh)
  }

  /// The generation of this process; never 0.
  public static var generation: UInt64 {
    let known = pointer.pointee.generation.load(ordering: .acquiring)
    return known != 0 ? known : renew()
  }

  @inline(never)
  private static func renew() -> UInt64 {
    let mine = newest.add(1, ordering: .relaxed).newValue
    let (exchanged, original) = pointer.pointee.generation.compareExchange(
      expected: 0, desired: mine, ordering: .acquiringAndReleasing)
    return exchanged ? mine : original
  }

  /// Whether a handle made under generation `g` belongs to an ancestor of this process.
  @inline(__always)
  public static func isForked(_ g: UInt64) -> Bool {
    pointer.pointee.generation.load(ordering: .relaxed) != g
  }

  /// The next id: 1, 2, 3 and so on within this process.
  public static func nextID() -> UInt64 {
    pointer.pointee.sequence.add(1, ordering: .relaxed).newValue
  }

  /// A word of the page, zero at first. Slot 0 has the default runtime; each other slot belongs to the code that
  /// names it. Words with more than one writer are changed under `withLock`.
  public static func slot(_ i: Int) -> UnsafeMutablePointer<UInt> {
    precondition(i >= 0 && i < slotCount)
    let raw = UnsafeMutableRawPointer(mutating: UnsafeRawPointer(pointer))
    return (raw + slotsOffset).assumingMemoryBound(to: UInt.self) + i
  }
  static let defaultRuntimeSlot = 0

  /// Runs `body` under the lock of the page: a few lines, and never user code.
  public static func withLock<R, E: Error>(_ body: () throws(E) -> R) throws(E) -> R {
    let p = pointer
    p.pointee.lock.lock()
    defer { p.pointee.lock.unlock() }
    return try body()
  }
}
