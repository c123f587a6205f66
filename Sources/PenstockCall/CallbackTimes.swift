import PenstockWire
import Synchronization

/// Times the callbacks of a channel's calls, and reports those that take long. They are timed only while
/// somebody gets the reports: otherwise a walk through the hops costs the look at `isOn`, and reads no clock. An
/// object of this class itself is never on.
open class CallbackTimes {
  /// How long a callback may take, in nanoseconds, before it is reported.
  public let limit: UInt64
  /// Whether callbacks are timed. Any thread.
  public let isOn = Atomic<Bool>(false)

  /// A callback that has taken longer than the limit.
  public struct Slow {
    public let call: UInt64
    /// The method's path, followed by a NUL.
    public let path: ByteBuffer
    /// The number of the interceptor's registration; 0 for a callback of the call's own user, or the picker.
    public let interceptor: UInt64
    public let event: EventKind
    public let nanoseconds: UInt64
  }

  public init(limit: UInt64) { self.limit = limit }

  /// Monotonic nanoseconds, which may be some milliseconds old: this clock is cheaper than the exact one. Any
  /// thread.
  open func clock() -> UInt64 { mustOverride(0) }

  /// Reports a callback that has returned. Called on the thread that has run the callback.
  open func report(_ slow: Slow) { mustOverride(()) }
}

extension Call {
  /// The time at which a callback begins, for `callbackEnded`; 0: callbacks are not timed.
  public var callbackBegins: UInt64 {
    @inline(__always) get {
      borrow(origin) { borrow($0.times) { $0.isOn.load(ordering: .relaxed) ? $0.clock() : 0 } }
    }
  }

  /// Notes that a callback has returned, which began at the time `began`. `registration`: as for
  /// `CallWatch.begin`.
  @inline(__always)
  public func callbackEnded(_ began: UInt64, _ event: EventKind, of registration: UInt64 = 0) {
    if began != 0 { _ = callbackEnded(began, CallWatch.name(registration, event)) }
  }

  /// Notes that a callback has returned, which began at the time `began`, and gives the time now. `name`: as
  /// for `CallWatch.show`.
  func callbackEnded(_ began: UInt64, _ name: UInt64) -> UInt64 {
    let times = origin.times
    let now = times.clock()
    if now >= began, now - began >= times.limit {
      times.report(
        CallbackTimes.Slow(
          call: id, path: request.firstPath, interceptor: CallWatch.registration(name),
          event: CallWatch.event(name), nanoseconds: now - began))
    }
    return now
  }
}
