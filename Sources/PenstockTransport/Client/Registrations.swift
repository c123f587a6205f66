import CSystem
import PenstockCall
import PenstockWire
import Synchronization

/// A change of one registration, which is named by its number alone.
public enum RegistrationChange {
  case removal
  case priority(Int32)
  case filter(CallFilter)
  /// Another registration stands in its turn from then on, with a filter of its own.
  case replacement(Registration)
}

extension Registry {
  /// Whether it is registered here, and the registration that the change has taken out.
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

/// Has a registry: the interceptors of a runtime, of a channel, of the options of calls. Before it goes it takes all out.
public class RegistrationOwner {
  init() {}

  /// False: `id` is not registered here.
  public func make(_ change: RegistrationChange, of id: UInt64) -> Bool { false }
}

/// The registrations of this process: their numbers, whose they are, and which of them have not been finalized yet.
///
/// Under the lock of the process's page, and reached from there, so that the child of a fork starts with none; its
/// numbers go on from the parent's, so that it knows which were the parent's.
public enum Registrations {
  /// Sorted by number: new ones go to the end.
  private final class Table {
    struct Live {
      let id: UInt64
      let name: ByteBuffer
      /// nil: it was taken out of there.
      var owner: Unmanaged<RegistrationOwner>?
      var isRemoved = false
      /// The thread that runs the finalizer.
      var finalizer: UInt64 = 0
    }

    /// The newest number that an ancestor of this process has given.
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

  /// With the page's lock held.
  private static var table: Table {
    let slot = Process.slot(processSlot)
    if let raw = UnsafeRawPointer(bitPattern: slot.pointee) {
      return Unmanaged<Table>.fromOpaque(raw).takeUnretainedValue()
    }
    let fresh = Table(inherited: newest.load(ordering: .relaxed))
    slot.pointee = UInt(bitPattern: Unmanaged.passRetained(fresh).toOpaque())
    return fresh
  }

  /// Gives `userData` a number, which ends with its finalizer. `name` stays as it is.
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

  /// Followed by a NUL; nil: it has been finalized, or there was none.
  @inline(never) @_optimize(size)
  public static func name(of id: UInt64) -> ByteBuffer? {
    Process.withLock {
      let table = table
      return table.index(of: id).map { table.live[$0].name }
    }
  }

  /// The registration is registered nowhere any more.
  static func removed(_ registration: Registration) {
    Process.withLock {
      let table = table
      guard let index = table.index(of: registration.id) else { return }
      table.live[index].isRemoved = true
      table.live[index].owner = nil
    }
  }

  /// The registration will end by itself, with the last call that has it: its channel or runtime has no handle left.
  static func isLeftAlone(_ registration: Registration) {
    Process.withLock {
      let table = table
      if let index = table.index(of: registration.id) { table.live[index].isRemoved = true }
    }
  }

  /// The registry in which `id` is now; without one, why not.
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

  /// Until the finalizer has run. Negative: without limit.
  @inline(never) @_optimize(size)
  public static func waitForRemoval(_ id: UInt64, timeoutMilliseconds: Int64) -> Outcome {
    let cell = WaitCell()
    let me = cs_thread_self()
    // A function keeps its call, too.
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

  /// The objects that a registration's user data keeps until its finalizer has run.
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
