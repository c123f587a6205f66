/// The limits on the memory and the work that a peer can cause, as far as no option sets them. The comment of
/// each limit gives the limited thing and its unit. The text after "Beyond:" gives the consequence if a peer
/// exceeds the limit. scripts/options copies these comments to docs/limits.md; CONTRIBUTING.md explains how
/// to add a limit.
public enum Limits {
  /// Frames and TLS messages without use for any call. Beyond: the connection ends.
  public static let framesWithoutUse = 10_000
  /// Frames without use that a connection forgives in each second: it subtracts them from its count of such
  /// frames. Beyond: the other frames stay in the count.
  public static let forgivenEachSecond: UInt64 = 100
  /// A header block, in multiples of `max_header_list_bytes`. Beyond: the connection ends.
  public static let headerBlockLists = 4
  /// Bytes of DATA that arrive on streams that the client has already ended, in addition to four windows of
  /// the connection. Beyond: they count as frames without use.
  public static let lateBytes = 16 << 20
  /// A status in a body (gRPC-Web, Connect): message and details in bytes, metadata as a header list counts.
  /// Beyond: the call ends with RESOURCE_EXHAUSTED.
  public static let statusInBodyBytes = 64 << 10
  /// Bytes of an answer that belongs to no RPC, such as a proxy's page, which the status keeps. Beyond: they are not
  /// read.
  public static let foreignBodyBytes = 512
  /// Nanoseconds for which these bytes are awaited after the headers. Beyond: the call ends without them.
  public static let foreignBodyNanoseconds: UInt64 = 1_000_000_000
  /// Bytes of a TLS handshake. Beyond: the connection fails.
  static let handshakeBytes = 1 << 20
  /// Bytes of TLS records that wait to be sent, in addition to the records of calls. Beyond: nothing is
  /// received until they are sent.
  static let waitingRecordBytes = 256 << 10
  /// Informational responses (1xx) of HTTP/1.1 before an answer. Beyond: the call and its connection end.
  public static let informationalResponses = 32
  /// Bytes of the line with the size of a chunk, its extensions included. Beyond: the call and its connection end.
  public static let chunkLineBytes = 4096
  /// Bytes of the extensions of chunks, beyond the bytes of the chunks. Beyond: the call and its connection end.
  public static let chunkExtensionBytes = 16 << 10
}
