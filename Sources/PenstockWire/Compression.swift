/// A compression of messages, by the name that header fields, options and the query of a GET give it: "Message-Encoding"
/// (gRPC over HTTP2), "Content-Encoding" (RFC 9110 section 8.4.1). A further compression is a case here, and steps
/// beside those of `Compressor`.
public enum Compression: Int, Sendable {
  case identity
  /// RFC 1952.
  case gzip
  /// zlib's format, RFC 1950.
  case deflate
  /// RFC 8878. Only programs that ask for it have it.
  case zstd

  /// The names of the compressions that an answer may use, the preferred one first.
  public static func names(withZstd: Bool) -> StaticString {
    withZstd ? "zstd,gzip,deflate,identity" : "identity,gzip,deflate"
  }
  /// Those of `names` that compress.
  public static func packedNames(withZstd: Bool) -> StaticString {
    withZstd ? "zstd,gzip,deflate" : "gzip,deflate"
  }

  public var name: StaticString {
    switch self {
    case .identity: "identity"
    case .gzip: "gzip"
    case .deflate: "deflate"
    case .zstd: "zstd"
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
    } else if equalIgnoringCase(name, "zstd") {
      self = .zstd
    } else {
      return nil
    }
  }
}
