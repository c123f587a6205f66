import COpenSSL
import CSystem
import PenstockWire

/// The settings of one side of TLS.
public struct TLSOptions {
  /// The source of certificates or of a key.
  public enum Source {
    case pem(ByteBuffer)
    /// The path of a file, without a NUL.
    case file(ByteBuffer)
  }

  /// The roots to trust; nil: those of the system, on the known distribution paths.
  public var roots: Source?
  /// Our own certificate first, then the chain to its root.
  public var certificateChain: Source?
  public var privateKey: Source?
  /// Client: whether the server's chain and name are verified.
  public var verifiesPeer = true
  /// Client: the name to verify and to send as SNI, instead of the target's host.
  public var serverName: ByteBuffer?
  /// Server: whether it asks for a client certificate, and refuses clients without a valid one.
  public var requiresClientCertificate = false
  /// Whether "h2" is offered and required (RFC 9113 section 3.2). Only a test turns it off.
  public var usesALPN = true

  public init() {}
}

/// The paths where distributions keep the roots, tried in turn. No environment variable is read.
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

/// Reads the files that an option names, and the system's roots: certificates and keys, nothing large.
enum SmallFile {
  enum Outcome {
    case bytes(ByteBuffer)
    case failed(Int32)
  }

  static let limit = 16 << 20

  @inline(never) @_optimize(size)
  static func read(_ path: ByteView) -> Outcome {
    guard let name = ByteBuffer(copying: path), name.append(byte: 0), let bytes = ByteBuffer(capacity: 0),
      let start = name.view.baseAddress
    else { return .failed(ENOMEM) }
    if path.contains(0) { return .failed(EINVAL) }
    let descriptor = penstock_open_read(start.assumingMemoryBound(to: CChar.self))
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
