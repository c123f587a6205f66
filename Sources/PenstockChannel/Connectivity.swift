/// The state of a channel or of a subchannel ("gRPC Connectivity Semantics and API"). The raw values are
/// those of the ABI and of gRPC.
public enum Connectivity: Int32, Equatable, Sendable {
  /// There is no connection, and none is being made; the next call makes the channel connect.
  case idle = 0
  case connecting = 1
  case ready = 2
  /// The last attempt to connect failed: calls without "wait for ready" fail, until an attempt succeeds.
  case transientFailure = 3
  /// Closed for good.
  case shutdown = 4
}
