import PenstockCall
import PenstockLoop
import PenstockWire

extension Closing {
  /// The status for calls that end for this reason. Each access makes a new object, so that no two calls share one.
  public var status: Status {
    switch self {
    case .channelClosed: Status(.cancelled, "channel closed")
    case .shutDown: Status(.cancelled, "runtime shut down")
    case .forked: Status(.cancelled, "the process was forked: the call is its parent's")
    case .descriptorsLost:
      Status(.unavailable, "the runtime's loop can't go on: something in the program closed its descriptors")
    }
  }
}
