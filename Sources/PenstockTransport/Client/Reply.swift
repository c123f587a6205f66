import PenstockCall
import PenstockWire

/// How a call ended. Immutable, but for the JSON that is made when it is first asked for, under the lock.
public final class Reply {
  public let status: Status
  public let headers: Metadata?
  public let message: Message?
  public let stats: CallStatistics
  public let values: CallValues
  public let generation: UInt64
  private let lock = Lock()
  private var texts: (status: ByteBuffer?, stats: ByteBuffer?) = (nil, nil)

  init(
    _ status: Status, _ headers: Metadata?, _ message: Message?, _ stats: CallStatistics,
    _ values: CallValues,
    _ generation: UInt64
  ) {
    self.status = status
    self.headers = headers
    self.message = message
    self.stats = stats
    self.values = values
    self.generation = generation
    values.hold()
  }

  deinit { values.letGo() }

  public enum Text { case status, stats }

  /// Made once by `make`, then kept as long as the reply.
  public func text(_ which: Text, _ make: (Reply) -> ByteBuffer?) -> ByteBuffer? {
    lock.lock()
    let known = which == .status ? texts.status : texts.stats
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
    }
  }
}
