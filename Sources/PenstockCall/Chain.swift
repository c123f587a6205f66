/// Where an interceptor stands: above the codec, where messages are the caller's objects, or below it, where they
/// are bytes. The values are the ABI's.
public enum Level: UInt32, Sendable {
  case bytes = 0
  case object = 1
  /// A registration only: its two hops stand at one level each.
  case both = 2
}

/// The chain of a call as the registries make it: fixed when the call is created, shared by all calls of a
/// method. From the top: the object level, the codec, the bytes level per call, the bytes level per attempt; each in
/// the order that it was given.
public final class Chain {
  /// What becomes a hop.
  public struct Entry {
    public let registration: Registration
    /// Never `both`.
    public let level: Level
    public let isPerAttempt: Bool
  }

  public let entries: [Entry]
  /// The codec works between the hops `codecIndex - 1` and `codecIndex`.
  public let codecIndex: Int

  /// In order of priority, as `Registry.merged` gives it.
  public init(_ registrations: [Registration]) {
    var entries: [Entry] = []
    entries.reserveCapacity(registrations.count)
    for registration in registrations where registration.level != .bytes {
      entries.append(Entry(registration: registration, level: .object, isPerAttempt: false))
    }
    codecIndex = entries.count
    for isPerAttempt in [false, true] {
      for registration in registrations
      where registration.level != .object && registration.isPerAttempt == isPerAttempt {
        entries.append(Entry(registration: registration, level: .bytes, isPerAttempt: isPerAttempt))
      }
    }
    self.entries = entries
  }

  /// A part of a chain, in its order.
  public init(of entries: [Entry]) {
    self.entries = entries
    codecIndex = entries.firstIndex { $0.level == .bytes } ?? entries.count
  }
}
