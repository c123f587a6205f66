import CPenstockOpenSSL
import CPenstockSystem
import PenstockWire

/// The TLS settings of a client or of a server.
public struct TLSOptions {
  /// The source of certificates or of a key.
  public enum Source {
    case pem(ByteBuffer)
    /// The path of a file, without a NUL.
    case file(ByteBuffer)
  }

  /// The trusted roots; nil: the system's roots, from the paths that Linux distributions use.
  public var roots: Source?
  /// Our own certificate first, then the certificates of its chain towards the root.
  public var certificateChain: Source?
  public var privateKey: Source?
  /// Client: lists of revoked certificates; nil: revocation is not checked.
  public var revocations: Source?
  /// Client: SHA-256 hashes of the keys of which the server's chain has to have one; empty: any key.
  public var pins: [ByteBuffer] = []
  /// Client: the SPIFFE ids of which the server's certificate has to have one, in place of the host's name;
  /// empty: the host's name is verified.
  public var spiffeIDs: [ByteBuffer] = []
  /// Client: whether the server's certificate chain and name are verified.
  public var verifiesPeer = true
  /// Client: the names of which the server's certificate has to have one, in place of the target's host; the
  /// first is sent as SNI. Empty: the target's host. Each is an IP address, or has no `HostName.flaw`.
  public var serverNames: [ByteBuffer] = []
  /// Server: whether the server asks for a client certificate, and refuses clients without a valid
  /// certificate.
  public var requiresClientCertificate = false
  /// Client: whether later connections resume the sessions of earlier ones (RFC 8446 section 2.2).
  public var resumes = false
  /// Whether TLS 1.2 is refused.
  public var needsTLS13 = false
  /// The names of the cipher suites that are allowed; empty: all that are safe.
  public var ciphers: [ByteBuffer] = []
  /// The path of the file to which the keys of each connection are appended; nil: they are kept secret.
  public var keyLogFile: ByteBuffer?
  /// Whether the version of HTTP is negotiated by ALPN. Only a test sets this to false.
  public var usesALPN = true
  /// The versions of HTTP that a client offers and a server accepts. If it is HTTP/2 alone, the peer must
  /// agree to it by ALPN (RFC 9113 section 3.2).
  public var http = HTTPChoice.http2

  public init() {}
}

/// The paths where Linux distributions store the trusted roots. They are tried in this order. No environment
/// variable is read.
enum SystemRoots {
  static let count = 6

  static func path(_ index: Int) -> StaticString {
    switch index {
    case 0: return "/etc/ssl/certs/ca-certificates.crt"
    case 1: return "/etc/pki/tls/certs/ca-bundle.crt"
    case 2: return "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"
    case 3: return "/etc/ssl/ca-bundle.pem"
    case 4: return "/etc/pki/tls/cacert.pem"
    default: return "/etc/ssl/cert.pem"
    }
  }
}

/// Reads certificates and keys, which are small: from the files that an option names, and from the paths of
/// the system's roots.
enum SmallFile {
  enum Outcome {
    case bytes(ByteBuffer)
    case failed(Int32)
  }

  static let limit = 16 << 20

  /// Reads a file. `onlyRegular`: on a thread that must not wait for another process, as a pipe would.
  static func read(_ path: ByteView, onlyRegular: Bool) -> Outcome {
    guard let name = ByteBuffer(copying: path), name.append(byte: 0), let bytes = ByteBuffer(capacity: 0),
      let start = name.view.baseAddress
    else { return .failed(ENOMEM) }
    if path.contains(0) { return .failed(EINVAL) }
    let descriptor = penstock_open_read(start.assumingMemoryBound(to: CChar.self), onlyRegular ? 1 : 0)
    guard descriptor >= 0 else { return .failed(-descriptor) }
    defer { cs_close(descriptor) }
    while true {
      guard bytes.count < limit else { return .failed(EFBIG) }
      guard let spare = bytes.spare(atLeast: 16384) else { return .failed(ENOMEM) }
      let n = Int(penstock_read(descriptor, spare.baseAddress, spare.count))
      if n == 0 { return .bytes(bytes) }
      if n < 0 { return .failed(Int32(truncatingIfNeeded: -n)) }
      bytes.commit(n)
    }
  }
}
