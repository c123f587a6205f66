import CPenstockMemory
import CPenstockSystem
import Synchronization

/// The state of this process as a whole, in one memory page that the kernel wipes in a forked child. The
/// child reads zeros: its global values are unset and every lock in the page is free, even if a thread of the
/// parent held one during the fork.
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

  /// The address of the page. In a forked child the address is equal, and the page contains zeros.
  private static let page = Atomic<UInt>(0)
  /// The newest generation that this process or an ancestor has taken. It is outside the wiped page, so that
  /// a child takes a greater number.
  private static let newest = Atomic<UInt64>(0)

  /// Whether the kernel wipes the page on fork; otherwise `Fork.prepare` does nothing.
  private static let canPrepare = Atomic<Bool>(true)
  /// The number of forks that were prepared by `Fork` on the way from the first process to this one; in each
  /// the child took over the handles. An object that must restart something in such a child stores `forks`
  /// when it is made, and compares later.
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

  private static func create() -> UnsafeRawPointer {
    // Only the page distinguishes a child from its parent. If the kernel can't wipe a page on fork (before
    // Linux 4.14), the page is static memory, and a fork handler wipes it.
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

  /// A word of the page, zero at first. Slot 0 has the address of the default runtime. Each other slot
  /// belongs to the code that has a constant for it. Words with more than one writer are changed under
  /// `withLock`.
  public static func slot(_ i: Int) -> UnsafeMutablePointer<UInt> {
    precondition(i >= 0 && i < slotCount)
    let raw = UnsafeMutableRawPointer(mutating: UnsafeRawPointer(pointer))
    return (raw + slotsOffset).assumingMemoryBound(to: UInt.self) + i
  }
  static let defaultRuntimeSlot = 0
  static let runtimesSlot = 5
  /// The slot whose word is 1 while a prepared fork is under way, and otherwise 0.
  private static let forkSlot = 6

  // MARK: Fork

  /// The content of the parent's page, which `goOnAsChild` writes to the child's page.
  struct Saved {
    fileprivate let generation: UInt64
    fileprivate let sequence: UInt64
    fileprivate var slots: [UInt] = []
  }

  /// Blocks all other threads that try to take a lock of the library, and waits until no thread holds a lock.
  /// Returns the content of the page. nil: a thread still held a lock at `deadline`, or the kernel can't wipe
  /// the page; no thread is blocked then.
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

  public static func goOn() {
    slot(forkSlot).pointee = 0
    cm_open_gate(0)
  }

  /// Called in the child: makes the parent's handles valid here. False: they stay invalid, because other code
  /// in the child has used the library before this call, so the child already has a generation of its own.
  /// `forget` is called while all locks are still blocked.
  static func goOnAsChild(_ saved: Saved, forgetting forget: () -> Void) -> Bool {
    let page = pointer
    let isFresh = page.pointee.generation.load(ordering: .relaxed) == 0
    if isFresh {
      for index in 0..<slotCount { slot(index).pointee = saved.slots[index] }
      page.pointee.sequence.store(saved.sequence, ordering: .relaxed)
      page.pointee.generation.store(saved.generation, ordering: .releasing)
      count.wrappingAdd(1, ordering: .relaxed)
      forget()
    }
    cm_open_gate(1)
    return isFresh
  }

  /// Runs `body` under the lock of the list of runtimes. The word in `runtimesSlot` is the address of the
  /// first runtime of that list.
  static func withRuntimes<R>(_ body: () -> R) -> R {
    let p = pointer
    p.pointee.runtimesLock.lock()
    defer { p.pointee.runtimesLock.unlock() }
    return body()
  }

  /// Runs `body` under the lock of the page. `body` must be short and call no user code.
  public static func withLock<R, E: Error>(_ body: () throws(E) -> R) throws(E) -> R {
    let p = pointer
    p.pointee.lock.lock()
    defer { p.pointee.lock.unlock() }
    return try body()
  }
}
