import PenstockCall
import PenstockWire
import PenstockLoop

/// The result of a call: status, headers, message, values. It does not change after the call has made it,
/// except for the fields under the lock.
public final class Reply {
  public let status: Status
  public internal(set) var headers: Metadata?
  public internal(set) var message: Message?
  public let stats: CallStatistics
  public let generation: UInt64
  /// The facts about the call for the trace's text; nil: no trace was kept.
  public let trace: CallRecord?
  private let lock = Lock()
  /// The values that the call and its hops share, under the lock; nil: none was set.
  private var values: CallValues?
  private var texts: (status: ByteBuffer?, stats: ByteBuffer?, trace: ByteBuffer?) = (nil, nil, nil)

  /// Inlined, so that `call` is borrowed from the caller without reference counting.
  @inline(__always)
  init(_ status: Status, _ generation: UInt64, _ call: borrowing Call) {
    self.status = status
    stats = call.lastStats
    self.generation = generation
    trace = call.trace == nil ? nil : CallRecord(copy call)
    if let values = call.knownValues { adopt(values) }
  }

  deinit { values?.letGo() }

  func adopt(_ values: CallValues) {
    lock.withLock {
      guard self.values == nil else { return }
      values.hold()
      self.values = values
    }
  }

  /// The values that the call and its hops share; nil: none was set.
  public var knownValues: CallValues? { lock.withLock { values } }

  public func value(_ key: ByteView) -> UnsafeMutableRawPointer? {
    knownValues?.get(key)
  }

  public enum Text { case status, stats, trace }

  /// Returns the text `which`. At the first request `make` makes the text, and the reply then keeps it.
  public func text(_ which: Text, _ make: (Reply) -> ByteBuffer?) -> ByteBuffer? {
    lock.lock()
    let known: ByteBuffer?
    switch which {
    case .status: known = texts.status
    case .stats: known = texts.stats
    case .trace: known = texts.trace
    }
    lock.unlock()
    if let known { return known }
    guard let made = make(self) else { return nil }
    lock.lock()
    defer { lock.unlock() }
    switch which {
    case .status:
      if texts.status == nil { texts.status = made }
      return texts.status
    case .stats:
      if texts.stats == nil { texts.stats = made }
      return texts.stats
    case .trace:
      if texts.trace == nil { texts.trace = made }
      return texts.trace
    }
  }
}
