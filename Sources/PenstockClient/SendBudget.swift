import Synchronization

/// How many bytes of messages the calls of a channel may have given to the library that are not sent yet: the sum of their
/// send buffers. When it is spent, each of these calls may have one message on its way, so that every call goes on, and none
/// has to be told when another has sent something. Any thread.
final class SendBudget: Sendable {
  private let limit: Int
  private let used = Atomic<Int>(0)

  private init(_ limit: Int) { self.limit = limit }

  /// nil: there is no limit.
  static func make(_ limit: Int) -> SendBudget? { limit > 0 ? SendBudget(limit) : nil }

  /// Whether there is room for a message that takes `bytes`.
  func hasRoom(_ bytes: Int) -> Bool { used.load(ordering: .relaxed) + bytes <= limit }

  func take(_ bytes: Int) { used.wrappingAdd(bytes, ordering: .relaxed) }

  func giveBack(_ bytes: Int) { used.wrappingSubtract(bytes, ordering: .relaxed) }
}
