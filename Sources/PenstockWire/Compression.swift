/// A compression of messages, by the name that header fields, options and the query of a GET give it: "Message-Encoding"
/// (gRPC over HTTP2), "Content-Encoding" (RFC 9110 section 8.4.1). A further compression is a case here, and steps
/// beside those of `Compressor`.
public enum Compression: Int, Sendable {
  case identity
  /// RFC 1952.
  case gzip
  /// zlib's format, RFC 1950.
  case deflate

  /// The names of all compressions, as an answer may use them.
  public static let names: StaticString = "identity,gzip,deflate"
  /// Those of `names` that compress.
  public static let packedNames: StaticString = "gzip,deflate"

  public var name: StaticString {
    switch self {
    case .identity: "identity"
    case .gzip: "gzip"
    case .deflate: "deflate"
    }
  }

  /// The compression with this name in a received field, which may also be written as RFC 9110 allows it: "All content
  /// codings are case-insensitive", and "x-gzip" is equivalent to "gzip". nil: there is none.
  public init?(named name: ByteView) {
    if equalIgnoringCase(name, "identity") {
      self = .identity
    } else if equalIgnoringCase(name, "gzip") || equalIgnoringCase(name, "x-gzip") {
      self = .gzip
    } else if equalIgnoringCase(name, "deflate") {
      self = .deflate
    } else {
      return nil
    }
  }
}
