import CPenstockSystem
import PenstockCall
import PenstockWire
import Synchronization
import PenstockLoop
import PenstockLink
import PenstockTransport

/// A change of one registered interceptor, which the user identifies by the number of its registration.
public enum RegistrationChange {
  case removal
  case priority(Int32)
  case filter(CallFilter)
  /// Calls that begin later get the new registration, with its own filter, in place of the old one.
  case replacement(Registration)
}

extension Registry {
  /// Makes the change. `isHere`: whether the registration `id` is in this registry. `gone`: the registration
  /// that the change has removed from the registry.
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

/// The owner of registered interceptors: a runtime, a channel, or the options of calls. An owner removes all
/// its registrations before it is freed.
public class RegistrationOwner {
  init() {}

  /// Changes the registration `id`. False: the owner has no registration with this number.
  public func make(_ change: RegistrationChange, of id: UInt64) -> Bool { mustOverride(false) }
}

/// The registered interceptors of this process, each with its number and its owner, until it is finalized.
///
/// The process's page (`Process`) has the address of the table, and the page's lock guards the table. So a
/// forked child starts without a table, unless it takes over the parent's handles (`Fork`). A child's numbers
/// continue after its parent's, so that the child recognises a number of the parent.
public enum Registrations {
  /// The registrations whose finalizer has not run yet, sorted by number. A new registration is added at the
  /// end.
  private final class Table {
    struct Live {
      let id: UInt64
      let name: ByteBuffer
      /// The owner of the registration; nil: the registration was removed.
      var owner: Unmanaged<RegistrationOwner>?
      var isRemoved = false
      /// The id of the thread that runs the finalizer; 0: the finalizer does not run now.
      var finalizer: UInt64 = 0
    }

    /// The newest number that the parent gave before it forked this process; 0: this process has no such
    /// parent.
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

  /// The table of this process; made at the first use. The caller holds the page's lock.
  private static var table: Table {
    let slot = Process.slot(processSlot)
    if let raw = UnsafeRawPointer(bitPattern: slot.pointee) {
      return Unmanaged<Table>.fromOpaque(raw).takeUnretainedValue()
    }
    let fresh = Table(inherited: newest.load(ordering: .relaxed))
    slot.pointee = UInt(bitPattern: Unmanaged.passRetained(fresh).toOpaque())
    return fresh
  }

  /// Gives the registration of `userData` a number. The number is valid until the finalizer of `userData` has
  /// run. `name` is not copied.
  public static func begin(_ userData: UserData, _ name: ByteBuffer, of owner: RegistrationOwner) -> UInt64 {
    let generation = Process.generation
    let id = Process.withLock { () -> UInt64 in
      let table = table
      let id = newest.add(1, ordering: .relaxed).newValue
      table.live.append(Table.Live(id: id, name: name, owner: .passUnretained(owner)))
      return id
    }
    userData.listener = Listener(id, generation)
    return id
  }

  /// The name of a registration, with a NUL at its end; nil: the registration was finalized, or never
  /// existed.
  public static func name(of id: UInt64) -> ByteBuffer? {
    Process.withLock {
      let table = table
      return table.index(of: id).map { table.live[$0].name }
    }
  }

  /// Notes that a registration was removed from its registry.
  static func removed(_ registration: Registration) {
    Process.withLock {
      let table = table
      guard let index = table.index(of: registration.id) else { return }
      table.live[index].isRemoved = true
      table.live[index].owner = nil
    }
  }

  /// Notes that the user has released the last handle of the registration's channel or runtime. The
  /// registration then ends by itself, after the last call that uses it.
  static func handlesReleased(_ registration: Registration) {
    Process.withLock {
      let table = table
      if let index = table.index(of: registration.id) { table.live[index].isRemoved = true }
    }
  }

  /// Returns the owner of the registration `id`. nil: it has no owner; the outcome is the reason.
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
  public static func waitForRemoval(_ id: UInt64, timeoutMilliseconds: Int64) -> Outcome {
    let cell = WaitCell()
    let me = cs_thread_self()
    // A function of a synchronous interceptor that runs on this thread keeps its call alive, and the call
    // keeps the registration. So a wait on this thread would never end.
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
      after: timeoutMilliseconds, from: Platform.systemClock())
    while !cell.isSet {
      let seen = cell.word.load(ordering: .sequentiallyConsistent)
      if cell.park(seen, until: deadline) == .timedOut { break }
    }
    Process.withLock { table.forget(cell) }
    return cell.isSet ? .ok : .timedOut
  }

  /// An object that a registration's user data holds until the user's finalizer has run. When it is released,
  /// it wakes the threads in `waitForRemoval`.
  private final class Listener: UserDataListener {
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
