import PenstockWire
import Synchronization

/// Says which callback runs on a runtime's driving thread; any thread may read it. So a callback that does
/// not return can be named, although nothing else of the runtime can be examined while the callback runs.
///
/// There is one writer, which never waits; a reader reads again if the writer has written meanwhile. The
/// object holds only numbers, so nothing is freed while a reader uses it.
public final class CallWatch: ClockMark, @unchecked Sendable {
  public struct Running {
    public let call: UInt64
    public let event: EventKind
    /// The number of the interceptor's registration; 0 for a callback of the call's own user.
    public let interceptor: UInt64
  }

  /// How often `begin` was called: once for each callback, or once for several callbacks of one call that
  /// follow each other.
  private let begun = Atomic<UInt64>(0)
  /// The event of the running callback, with the registration's number in the upper bits; 0: no callback
  /// runs.
  private let what = Atomic<UInt64>(0)
  private let call = Atomic<UInt64>(0)

  public override init() { super.init() }

  /// Notes that a callback begins: one of an interceptor, or one of the call's user, for which `registration`
  /// is 0.
  @inline(__always)
  public func begin(_ id: UInt64, _ event: EventKind, of registration: UInt64 = 0) {
    begin(id, CallWatch.name(registration, event))
  }

  /// The event and the registration's number, packed into one number.
  @inline(__always)
  static func name(_ registration: UInt64, _ event: EventKind) -> UInt64 {
    registration << 8 | UInt64(UInt8(truncatingIfNeeded: event.rawValue))
  }

  /// The event and the registration's number that `name` has packed.
  static func event(_ name: UInt64) -> EventKind { EventKind(rawValue: Int32(name & 0xff)) ?? .none }
  static func registration(_ name: UInt64) -> UInt64 { name >> 8 }

  /// Notes that a callback begins. The order of the writes matters: a reader that sees the new call also sees
  /// that the old callback is over, and a reader that sees the new callback also sees the new count.
  @inline(__always)
  func begin(_ id: UInt64, _ name: UInt64) {
    begin(id)
    show(name)
  }

  /// Notes that several callbacks of one call begin. `show` names each of them, and `end` ends the last.
  @inline(__always)
  func begin(_ id: UInt64) {
    isStale = true
    what.store(0, ordering: .releasing)
    call.store(id, ordering: .releasing)
    begun.store(begun.load(ordering: .relaxed) &+ 1, ordering: .releasing)
  }

  @inline(__always)
  func show(_ name: UInt64) { what.store(name, ordering: .releasing) }

  @inline(__always)
  public func end() { what.store(0, ordering: .releasing) }

  /// The callback that runs now. Any thread may ask. nil: no callback runs, or callbacks follow each other
  /// too fast to read one.
  public func running() -> Running? {
    for _ in 0..<1000 {
      let seen = what.load(ordering: .acquiring)
      guard seen != 0 else { return nil }
      let count = begun.load(ordering: .acquiring)
      let id = call.load(ordering: .acquiring)
      guard what.load(ordering: .acquiring) == seen, begun.load(ordering: .relaxed) == count else { continue }
      return Running(
        call: id, event: CallWatch.event(seen), interceptor: CallWatch.registration(seen))
    }
    return nil
  }
}
