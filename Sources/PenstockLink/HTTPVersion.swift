import PenstockWire

/// The choice of the HTTP version.
public enum HTTPChoice: UInt8, Sendable {
  /// With TLS the server chooses (ALPN). In cleartext, gRPC uses HTTP/2, and all other protocols use
  /// HTTP/1.1.
  case auto
  case http2, http1
}

/// The HTTP version of a connection. To add a version, add a case.
public enum HTTPVersion: Sendable {
  case http2, http1

  /// The version with this name in ALPN (RFC 7301). nil: the library does not support that protocol.
  public init?(alpn name: ByteView) {
    if bytesEqual(name, "h2") {
      self = .http2
    } else if bytesEqual(name, "http/1.1") {
      self = .http1
    } else {
      return nil
    }
  }

  /// The version that the peer has chosen in TLS. Without a choice by TLS it is HTTP/2 if only HTTP/2 is
  /// wanted (RFC 9113 section 3.3, "prior knowledge"), and HTTP/1.1 otherwise.
  public static func chosen(on link: Link, _ wanted: HTTPChoice) -> HTTPVersion {
    link.engine.flatMap { HTTPVersion(alpn: $0.alpn) } ?? (wanted == .http2 ? .http2 : .http1)
  }
}
