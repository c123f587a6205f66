import CSystem
import PenstockCall
import PenstockWire
import Synchronization

/// A change of one registration, which the user names by its number.
public enum RegistrationChange {
  case removal
  case priority(Int32)
  case filter(CallFilter)
  /// Calls that begin later get another registration, which has a filter of its own.
  case replacement(Registration)
}

extension Registry {
  /// Makes the change. Returns whether the registration is in this registry, and the registration that the change has
  /// taken out.
  mutating func make(_ change: RegistrationChange, of id: UInt64) -> (isHere: Bool, gone: Entry?) {
    switch change {
    case .removal:
      let gone = remove(id)
      return (gone != nil, gone)
    case .replacement(let other):
      let gone = replace(id, by: other)
      return (gone != nil, gone)
    case .priority(let priority): return (setPriority(id, priority), nil)
    case .filter(let filter): return (setFilter(id, filter), nil)
    }
  }
}

/// The owner of a registry: a runtime, a channel or the options of calls. Before it is freed it removes all its
/// registrations.
public class RegistrationOwner {
  init() {}

  /// Changes the registration `id`. False: it is not registered here.
  public func make(_ change: RegistrationChange, of id: UInt64) -> Bool { false }
}

/// The registrations of this process: the number and the owner of each, and whether it was finalized.
///
/// The process's page (`Process`) has the table's address, and the page's lock guards the table. So a forked
/// child starts without a table, unless it takes over the parent's (`Fork`). A child's numbers go on from its
/// parent's, so that the child recognises a number of the parent.
public enum Registrations {
  /// The registrations whose finalizer has not run, sorted by number: new ones go to the end.
  private final class Table {
    struct Live {
      let id: UInt64
      let name: ByteBuffer
      /// The owner of the registry that has the registration; nil: the registration was removed.
      var owner: Unmanaged<RegistrationOwner>?
      var isRemoved = false
      /// The thread that runs the finalizer; 0: none.
      var finalizer: UInt64 = 0
    }

    /// The newest number that was given before the fork that made this process; 0: none.
    let inherited: UInt64
    var live: [Live] = []
    var waiting: [(id: UInt64, cell: WaitCell)] = []

    init(inherited: UInt64) { self.inherited = inherited }

    func forget(_ cell: WaitCell) {
      var index = 0
      while index < waiting.count, waiting[index].cell !== cell { index += 1 }
      if index < waiting.count { waiting.remove(at: index) }
    }

    func index(of id: UInt64) -> Int? {
      var low = 0
      var high = live.count
      while low < high {
        let middle = (low + high) / 2
        if live[middle].id < id { low = middle + 1 } else { high = middle }
      }
      return low < live.count && live[low].id == id ? low : nil
    }
  }

  private static let processSlot = 4
  private static let newest = Atomic<UInt64>(0)

  /// The table of this process. Called with the page's lock held.
  private static var table: Table {
    let slot = Process.slot(processSlot)
    if let raw = UnsafeRawPointer(bitPattern: slot.pointee) {
      return Unmanaged<Table>.fromOpaque(raw).takeUnretainedValue()
    }
    let fresh = Table(inherited: newest.load(ordering: .relaxed))
    slot.pointee = UInt(bitPattern: Unmanaged.passRetained(fresh).toOpaque())
    return fresh
  }

  /// Gives `userData` a number, which is valid until its finalizer has run. `name` is not copied.
  @inline(never) @_optimize(size)
  public static func begin(_ userData: UserData, _ name: ByteBuffer, of owner: RegistrationOwner) -> UInt64 {
    let generation = Process.generation
    let id = Process.withLock { () -> UInt64 in
      let table = table
      let id = newest.add(1, ordering: .relaxed).newValue
      table.live.append(Table.Live(id: id, name: name, owner: .passUnretained(owner)))
      return id
    }
    userData.keeper = Keeper(id, generation)
    return id
  }

  /// The name of a registration, followed by a NUL; nil: it has been finalized, or never existed.
  @inline(never) @_optimize(size)
  public static func name(of id: UInt64) -> ByteBuffer? {
    Process.withLock {
      let table = table
      return table.index(of: id).map { table.live[$0].name }
    }
  }

  /// Notes that a registration was taken out of its registry.
  static func removed(_ registration: Registration) {
    Process.withLock {
      let table = table
      guard let index = table.index(of: registration.id) else { return }
      table.live[index].isRemoved = true
      table.live[index].owner = nil
    }
  }

  /// Notes that the channel or runtime of a registration has no handle left: the registration then ends by itself,
  /// with the last call that has it.
  static func isLeftAlone(_ registration: Registration) {
    Process.withLock {
      let table = table
      if let index = table.index(of: registration.id) { table.live[index].isRemoved = true }
    }
  }

  /// The owner of the registry that has `id` now; if there is none, the reason.
  @inline(never) @_optimize(size)
  public static func owner(of id: UInt64) -> (Outcome, RegistrationOwner?) {
    Process.withLock {
      let table = table
      guard id != 0, id <= newest.load(ordering: .relaxed) else { return (.notFound, nil) }
      guard id > table.inherited else { return (.forked, nil) }
      guard let index = table.index(of: id), let owner = table.live[index].owner else {
        return (.notFound, nil)
      }
      return (.ok, owner.takeUnretainedValue())
    }
  }

  /// Waits until the finalizer of `id` has run. A negative timeout means without limit.
  @inline(never) @_optimize(size)
  public static func waitForRemoval(_ id: UInt64, timeoutMilliseconds: Int64) -> Outcome {
    let cell = WaitCell()
    let me = cs_thread_self()
    // A synchronous interceptor's function that runs on this thread keeps its call, and so the registration: waiting
    // here would never end.
    let isDriving = DrivingThread.isCurrent() || Worker.current?.runs(registration: id) == true
    let outcome = Process.withLock { () -> Outcome? in
      let table = table
      guard id != 0, id <= newest.load(ordering: .relaxed) else { return .notFound }
      guard id > table.inherited else { return .forked }
      guard let index = table.index(of: id) else { return .ok }
      guard table.live[index].isRemoved else { return .state }
      if isDriving || table.live.contains(where: { $0.finalizer == me }) { return .wouldDeadlock }
      table.waiting.append((id, cell))
      return nil
    }
    if let outcome { return outcome }
    let deadline = Runtime.deadline(
      after: timeoutMilliseconds, from: Runtime.monotonicNow())
    while !cell.isSet {
      let seen = cell.word.load(ordering: .sequentiallyConsistent)
      if cell.park(seen, until: deadline) == .timedOut { break }
    }
    Process.withLock { table.forget(cell) }
    return cell.isSet ? .ok : .timedOut
  }

  /// The object that a registration's user data keeps until its finalizer has run. Its release then wakes the threads
  /// in `waitForRemoval`.
  private final class Keeper: UserDataKeeper {
    private let id: UInt64
    private let generation: UInt64

    init(_ id: UInt64, _ generation: UInt64) {
      self.id = id
      self.generation = generation
    }

    func finalizing() {
      guard !Process.isForked(generation) else { return }
      Process.withLock {
        let table = table
        guard let index = table.index(of: id) else { return }
        table.live[index].isRemoved = true
        table.live[index].finalizer = cs_thread_self()
      }
    }

    @inline(never) @_optimize(size)
    deinit {
      guard !Process.isForked(generation) else { return }
      let cells = Process.withLock { () -> [WaitCell] in
        let table = table
        if let index = table.index(of: id) { table.live.remove(at: index) }
        return table.waiting.filter { $0.id == id }.map { $0.cell }
      }
      for cell in cells { cell.set() }
    }
  }
}
