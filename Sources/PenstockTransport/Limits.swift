/// The bounds that no option sets, on the memory and the work that a peer can cause. The comment of a row names the bounded
/// thing and its unit; behind "Beyond:" it says what follows if a peer goes over the bound. docs/limits.md has these
/// rows, by scripts/options; CONTRIBUTING.md says how to add one.
enum Limits {
  /// Frames and TLS messages without use for any call. Beyond: the connection ends.
  static let framesWithoutUse = 10_000
  /// Frames without use that are forgiven in each second. Beyond: they count.
  static let forgivenEachSecond: UInt64 = 100
  /// A header block, in multiples of `max_header_list_bytes`. Beyond: the connection ends.
  static let headerBlockLists = 4
  /// Bytes of DATA that come late on streams that the client has given up, beside four windows of the connection.
  /// Beyond: they count as frames without use.
  static let lateBytes = 16 << 20
  /// The metadata of a status that comes in a body (gRPC-Web, Connect), in bytes as a header list. Beyond: the call fails.
  static let statusInBodyBytes = 64 << 10
  /// Bytes of a TLS handshake. Beyond: the connection fails.
  static let handshakeBytes = 1 << 20
  /// Bytes of TLS records that wait to be sent, beyond those of calls. Beyond: nothing is read until they have left.
  static let waitingRecordBytes = 256 << 10
  /// Informational responses (1xx) of HTTP/1.1 before an answer. Beyond: the call and its connection end.
  static let informationalResponses = 32
  /// Bytes of the line with the size of a chunk, its extensions included. Beyond: the call and its connection end.
  static let chunkLineBytes = 4096
  /// Bytes of the extensions of chunks, beyond the bytes of the chunks. Beyond: the call and its connection end.
  static let chunkExtensionBytes = 16 << 10
}
