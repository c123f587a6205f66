import COpenSSL
import CSystem
import PenstockCall
import PenstockChannel
import PenstockWire

/// The results of a TLS handshake, and the certificates that the peer has shown. Any thread.
final class TLSFacts: SecurityFacts {
  /// The certificates, which are never changed.
  private let chain: OpaquePointer?
  private let lock = Lock()
  /// The certificates in PEM form, made when first asked for, under the lock.
  private var pem: ByteBuffer?

  /// Takes over a reference to `chain`.
  init(version: ByteBuffer, cipher: ByteBuffer, alpn: ByteBuffer, chain: OpaquePointer?) {
    self.chain = chain
    super.init(version: version, cipher: cipher, alpn: alpn)
  }

  deinit { penstock_chain_free(chain) }

  override var certificateCount: Int { chain.map { Int(penstock_chain_count($0)) } ?? 0 }

  override func certificates() -> ByteBuffer? {
    lock.lock()
    defer { lock.unlock() }
    if let pem { return pem }
    guard let made = write() else { return nil }
    pem = made
    return made
  }

  private func write() -> ByteBuffer? {
    guard let bio = BIO_new(BIO_s_mem()) else { return nil }
    defer { BIO_free(bio) }
    // A server always shows certificates. So if there is no chain, there was no memory to keep it.
    guard let chain else { return nil }
    guard penstock_chain_write(chain, bio) == 1 else {
      ERR_clear_error()
      return nil
    }
    var start: UnsafeMutablePointer<CChar>?
    let count = Int(penstock_bio_memory(bio, &start))
    return ByteBuffer(copying: ByteView(start: start, count: count))
  }
}

extension TLSEngine {
  /// The facts of the connection. Called after the handshake.
  func facts() -> SecurityFacts {
    TLSFacts(
      version: ByteBuffer().say(cString: version), cipher: ByteBuffer().say(cString: cipher),
      alpn: ByteBuffer().say(alpn), chain: retainedPeerChain())
  }
}
