import CMemory
import CSystem
import Synchronization

/// The state of this process as a whole, in one page that `fork` wipes: a child reads zeros, and so finds its
/// globals fresh and every lock free, regardless of the locks that the parent's threads held at that moment.
///
/// The generation is a number that distinguishes a process from its ancestors, from which it may have
/// inherited handles. Each handle keeps the generation of the process that made it. The generation of a child
/// differs from those of all its ancestors, unless the child takes over its parent's handles (`Fork`).
public enum Process {
  private struct Page: ~Copyable {
    let generation: Atomic<UInt64>
    let sequence: Atomic<UInt64>
    let lock: Lock
    let runtimesLock: Lock
  }

  /// The address of the page. A forked child has the same address, but its page is wiped.
  private static let page = Atomic<UInt>(0)
  /// The newest generation that this process or an ancestor has taken. It is not in the page, so that a child
  /// goes on counting from this number.
  private static let newest = Atomic<UInt64>(0)

  /// Whether the kernel wipes the page on fork; otherwise `Fork.prepare` does nothing.
  private static let canPrepare = Atomic<Bool>(true)
  /// How many of the forks that led to this process were prepared by `Fork`, so that the child took over the
  /// handles. An object that has to start something again in such a child keeps the number that it was made
  /// under, and compares.
  private static let count = Atomic<UInt32>(0)
  public static var forks: UInt32 { count.load(ordering: .relaxed) }

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
        canPrepare.store(false, ordering: .relaxed)
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
  static let runtimesSlot = 5
  /// The slot that is 1 while a prepared fork is under way, and otherwise 0.
  private static let forkSlot = 6

  // MARK: Fork

  /// The content of the parent's page, which `goOnAsChild` writes to the child's page.
  struct Saved {
    fileprivate let generation: UInt64
    fileprivate let sequence: UInt64
    fileprivate var slots: [UInt] = []
  }

  /// Keeps all other threads from taking a lock of the library, and waits until none holds one. Returns the
  /// content of the page. nil: a thread held a lock until `deadline`, or the kernel can't wipe the page; then
  /// no thread is kept waiting.
  @inline(never) @_optimize(size)
  static func stop(until deadline: UInt64) -> Saved? {
    guard generation != 0, canPrepare.load(ordering: .relaxed) else { return nil }
    slot(forkSlot).pointee = 1
    guard cm_shut_gate(slot(forkSlot), deadline) != 0 else {
      slot(forkSlot).pointee = 0
      return nil
    }
    let page = pointer
    var saved = Saved(
      generation: page.pointee.generation.load(ordering: .relaxed),
      sequence: page.pointee.sequence.load(ordering: .relaxed))
    for index in 0..<slotCount { saved.slots.append(index == forkSlot ? 0 : slot(index).pointee) }
    return saved
  }

  @inline(never) @_optimize(size)
  static func goOn() {
    slot(forkSlot).pointee = 0
    cm_open_gate(0)
  }

  /// Called in the child: makes the parent's handles valid here. False: they stay invalid, because other code has used
  /// the library in the child before this, and so the child has taken a generation of its own.
  @inline(never) @_optimize(size)
  static func goOnAsChild(_ saved: Saved) -> Bool {
    let page = pointer
    let isFresh = page.pointee.generation.load(ordering: .relaxed) == 0
    if isFresh {
      for index in 0..<slotCount { slot(index).pointee = saved.slots[index] }
      page.pointee.sequence.store(saved.sequence, ordering: .relaxed)
      page.pointee.generation.store(saved.generation, ordering: .releasing)
      count.wrappingAdd(1, ordering: .relaxed)
      Worker.forgetAll()
    }
    cm_open_gate(1)
    return isFresh
  }

  /// Runs `body` under the lock of the list of runtimes. `runtimesSlot` has the first runtime of that list.
  static func withRuntimes<R>(_ body: () -> R) -> R {
    let p = pointer
    p.pointee.runtimesLock.lock()
    defer { p.pointee.runtimesLock.unlock() }
    return body()
  }

  /// Runs `body` under the lock of the page: a few lines, and never user code.
  public static func withLock<R, E: Error>(_ body: () throws(E) -> R) throws(E) -> R {
    let p = pointer
    p.pointee.lock.lock()
    defer { p.pointee.lock.unlock() }
    return try body()
  }
}
