/// The limits that a client announces to its peer, and those that it observes itself.
public struct TransportLimits {
  /// The most bytes of one stream's body that may be on the network or unread.
  public var streamWindow = 1 << 20
  /// The most bytes that may be on the network for the whole connection (see `ConnectionWindow`). Unread
  /// bytes do not count here (see `HTTP2Session`).
  public var connectionWindow = 4 << 20
  /// The size in bytes up to which windows may grow; 0: windows do not grow (see `WindowGrowth`).
  public var mostWindow = 0
  public var maxHeaderList = 16384
  /// The number of bytes that one `collect` gathers; frames beyond it wait. The number is doubled if messages
  /// are not copied.
  var outputSize = 256 << 10

  public init() {}
}
