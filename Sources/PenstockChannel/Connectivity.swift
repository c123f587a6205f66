/// The state of a channel or of a subchannel ("gRPC Connectivity Semantics and API"). The raw values are the ABI's and
/// gRPC's.
public enum Connectivity: Int32, Equatable, Sendable {
  /// There is no connection, and none is being made: the next call begins one.
  case idle = 0
  case connecting = 1
  case ready = 2
  /// The last attempt failed: calls that do not wait for a connection fail, until an attempt succeeds.
  case transientFailure = 3
  /// Closed for good.
  case shutdown = 4
}
