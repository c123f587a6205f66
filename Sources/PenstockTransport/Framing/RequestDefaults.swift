import PenstockCall
import PenstockWire

/// The data that all requests of a channel share.
final class RequestDefaults {
  let privacy: Privacy
  /// The authority, without a NUL.
  let authority: ByteBuffer
  let userAgent: ByteBuffer
  let framings: Framings
  let rpc: RPCProtocol
  /// The path of a target that is a URL, without a slash at its end. It is put before the path of each
  /// method. nil: the target has no path.
  let prefix: ByteBuffer?
  /// The most bytes of a GET request's path and query, without `prefix`.
  let mostQueryBytes: Int
  /// Whether answers may be compressed by zstd.
  let acceptsZstd: Bool
  /// The owner of the common header fields of Connect's unary calls. This `RequestDefaults` owns the common
  /// fields of all other calls.
  let unary = Unary()

  final class Unary {}

  /// Makes the defaults. `mostURLBytes`: the longest path of a GET request in bytes, with its query.
  init(
    privacy: Privacy, authority: ByteBuffer, userAgent: ByteBuffer, framings: Framings = Framings(),
    rpc: RPCProtocol = .grpc, prefix: ByteBuffer? = nil, mostURLBytes: Int = 0,
    acceptsZstd: Bool = false
  ) {
    self.privacy = privacy
    self.authority = authority
    self.userAgent = userAgent
    self.framings = framings
    self.rpc = rpc
    self.prefix = prefix
    mostQueryBytes = mostURLBytes - (prefix?.count ?? 0)
    self.acceptsZstd = acceptsZstd
  }
}
