import PenstockCall
import PenstockWire

/// The part that all requests of a channel have in common.
final class RequestDefaults {
  let privacy: Privacy
  /// The authority, without a NUL.
  let authority: ByteBuffer
  let userAgent: ByteBuffer
  let framings: Framings
  let rpc: RPCProtocol
  /// The path of a target that is a URL, without a slash at its end: it stands before the path of each method. nil:
  /// none.
  let prefix: ByteBuffer?
  /// The longest path, with its query, that a GET may have, in bytes.
  let mostURLBytes: Int
  /// The owner of the header fields that Connect's unary calls have in common; those of other calls belong to this object.
  let unary = Unary()

  final class Unary {}

  init(
    privacy: Privacy, authority: ByteBuffer, userAgent: ByteBuffer, framings: Framings = Framings(),
    rpc: RPCProtocol = .grpc, prefix: ByteBuffer? = nil, mostURLBytes: Int = 0
  ) {
    self.privacy = privacy
    self.authority = authority
    self.userAgent = userAgent
    self.framings = framings
    self.rpc = rpc
    self.prefix = prefix
    self.mostURLBytes = mostURLBytes
  }
}
