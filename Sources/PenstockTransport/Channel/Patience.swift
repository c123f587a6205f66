/// How long an attempt may wait while the channel can't connect (gRPC's "wait for ready").
enum Patience: Int, Comparable {
  /// The attempt fails at once.
  case none
  /// The attempt waits until the channel has tried to connect once more. Used for an attempt that is picked again (see
  /// `Attempt`), or that follows an attempt that the server has not processed.
  case oneConnection
  /// The attempt waits until the channel has a connection, for any time.
  case anyTime

  static func < (one: Patience, other: Patience) -> Bool { one.rawValue < other.rawValue }
}
