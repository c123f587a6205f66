import Synchronization

/// The callback that runs on the driving thread of a runtime, for any thread to see. So a callback that does
/// not return can be named, although nothing else of the runtime can be examined while it runs.
///
/// There is one writer, which never waits; a reader reads again if the writer has written meanwhile. The watch holds
/// numbers only, nothing that could be freed under a reader.
public final class CallWatch: @unchecked Sendable {
  public struct Running {
    public let call: UInt64
    public let event: EventKind
    /// The number of the interceptor's registration; 0: it is a callback of the call itself.
    public let interceptor: UInt64
  }

  /// How often `begin` was called: once for each callback, or for several callbacks of one call in a row.
  private let begun = Atomic<UInt64>(0)
  /// The event, with the registration in the upper bits; 0: no callback runs.
  private let what = Atomic<UInt64>(0)
  private let call = Atomic<UInt64>(0)

  /// Whether user code, which may take long, has run since the loop last read the clock. On the driving thread.
  public var hasRun = false

  public init() {}

  /// A callback begins: an interceptor's, or the caller's, which has 0 as its registration.
  @inline(__always)
  public func begin(_ id: UInt64, _ event: EventKind, of registration: UInt64 = 0) {
    begin(id, CallWatch.name(registration, event))
  }

  /// The event and the registration as one number.
  @inline(__always)
  static func name(_ registration: UInt64, _ event: EventKind) -> UInt64 {
    registration << 8 | UInt64(UInt8(truncatingIfNeeded: event.rawValue))
  }

  /// The order of the writes matters: a reader that sees the new call also sees that the old callback is over, and a
  /// reader that sees the new callback also sees the new count.
  @inline(__always)
  func begin(_ id: UInt64, _ name: UInt64) {
    begin(id)
    show(name)
  }

  /// Several callbacks of one call begin, each named by `show`; the last is over when `end` is called.
  @inline(__always)
  func begin(_ id: UInt64) {
    hasRun = true
    what.store(0, ordering: .releasing)
    call.store(id, ordering: .releasing)
    begun.store(begun.load(ordering: .relaxed) &+ 1, ordering: .releasing)
  }

  @inline(__always)
  func show(_ name: UInt64) { what.store(name, ordering: .releasing) }

  @inline(__always)
  public func end() { what.store(0, ordering: .releasing) }

  /// The callback that runs, for any thread. nil: no callback runs, or callbacks follow each other too fast
  /// to read one.
  public func running() -> Running? {
    for _ in 0..<1000 {
      let seen = what.load(ordering: .acquiring)
      guard seen != 0 else { return nil }
      let count = begun.load(ordering: .acquiring)
      let id = call.load(ordering: .acquiring)
      guard what.load(ordering: .acquiring) == seen, begun.load(ordering: .relaxed) == count else { continue }
      return Running(
        call: id, event: EventKind(rawValue: Int32(seen & 0xff)) ?? .none, interceptor: seen >> 8)
    }
    return nil
  }
}
