import CPenstockOpenSSL
import PenstockWire

/// The private key with which tokens are signed (JSON Web Signature, RFC 7515): by RS256 with a key for RSA of at least 2048
/// bits, by ES256 with one for the curve P-256 (RFC 7518 section 3.1).
public final class SigningKey {
  public enum Found {
    case key(SigningKey)
    /// The words say why the text has no key that signs.
    case unusable(ByteBuffer)
    case noMemory
  }

  private let handle: OpaquePointer
  /// The name of the algorithm, as a token's header has it.
  public let algorithm: StaticString

  /// The size of the largest signature: that of an RSA key of 16384 bits, OpenSSL's limit.
  private static let most = 2048

  private init(_ handle: OpaquePointer, _ algorithm: StaticString) {
    self.handle = handle
    self.algorithm = algorithm
  }

  deinit { EVP_PKEY_free(handle) }

  /// Reads the key from a text in PEM form. Any thread.
  public static func read(_ pem: ByteView) -> Found {
    TLSContext.using {
      guard let key = TLSContext.privateKey(pem) else {
        return .unusable(TLSContext.reason(TLSContext.noKey))
      }
      switch Int(penstock_key_algorithm(key)) {
      case PENSTOCK_SIGNS_RS256: return .key(SigningKey(key, "RS256"))
      case PENSTOCK_SIGNS_ES256: return .key(SigningKey(key, "ES256"))
      default:
        EVP_PKEY_free(key)
        return .unusable(
          ByteBuffer().say("the key is neither for RSA, of at least 2048 bits, nor for the curve P-256"))
      }
    } ?? .noMemory
  }

  /// The signature of the text; nil: it could not be made. Any thread.
  public func sign(_ text: ByteView) -> ByteBuffer? {
    let signature = ByteBuffer()
    guard let space = signature.spare(atLeast: SigningKey.most) else { return nil }
    let size = TLSContext.using {
      penstock_key_sign(
        TLSContext.library(), handle, text.baseAddress, text.count, space.baseAddress, SigningKey.most)
    }
    guard let size, size > 0 else { return nil }
    signature.commit(size)
    return signature
  }
}
