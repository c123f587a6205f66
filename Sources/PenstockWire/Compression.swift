import CPenstockSystem

/// A compression of messages, by the name that header fields, options and the query of a GET give it: "Message-Encoding"
/// (gRPC over HTTP2), "Content-Encoding" (RFC 9110 section 8.4.1). A further compression is a case here, with its
/// names, and steps beside those of `Compressor`.
public enum Compression: Equatable, Sendable {
  case identity
  /// RFC 1952.
  case gzip
  /// zlib's format, RFC 1950.
  case deflate
  /// RFC 8878. Only programs that ask for it have it.
  case zstd
  /// One that the program makes itself, by a compressor of the channel.
  case named(CompressionName)

  /// The names of all but those of programs, as options have them, with a space between them. The first is the default.
  public static var words: StaticString { "identity gzip deflate zstd" }

  /// The names of the compressions that an answer may use, the preferred one first.
  public static func names(withZstd: Bool) -> StaticString {
    withZstd ? "zstd,gzip,deflate,identity" : "identity,gzip,deflate"
  }
  /// Those of `names` that compress.
  public static func packedNames(withZstd: Bool) -> StaticString {
    withZstd ? "zstd,gzip,deflate" : "gzip,deflate"
  }

  /// The name, behind which there is a NUL. It lives for ever.
  public var name: ByteView {
    switch self {
    case .identity: ("identity" as StaticString).bytes
    case .gzip: ("gzip" as StaticString).bytes
    case .deflate: ("deflate" as StaticString).bytes
    case .zstd: ("zstd" as StaticString).bytes
    case .named(let own): own.name
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

/// The name of a compression that the program makes itself. There is one for each name, so that the settings of a call
/// copy it without counting references. `@unchecked Sendable`: its bytes never change.
public struct CompressionName: Equatable, @unchecked Sendable {
  private let text: UnsafeRawPointer

  /// `text`: the name, with a NUL, which nobody frees.
  public init(text: UnsafeRawPointer) { self.text = text }

  /// The name without its NUL.
  public var name: ByteView {
    ByteView(start: text, count: strlen(text.assumingMemoryBound(to: CChar.self)))
  }
}
