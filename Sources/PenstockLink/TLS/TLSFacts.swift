import CPenstockOpenSSL
import CPenstockSystem
import PenstockCall
import PenstockWire
import PenstockLoop

/// The results of a TLS handshake, and the certificates that the peer has sent. Any thread.
final class TLSFacts: SecurityFacts {
  /// The peer's certificates. They do not change.
  private let chain: OpaquePointer?
  private let lock = Lock()
  /// The peer's certificates in PEM form, made at the first request. Under the lock.
  private var pem: ByteBuffer?

  /// Takes over the caller's reference to `chain`.
  init(version: ByteBuffer, cipher: ByteBuffer, alpn: ByteBuffer, isResumed: Bool, chain: OpaquePointer?) {
    self.chain = chain
    super.init(version: version, cipher: cipher, alpn: alpn, isResumed: isResumed)
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
    // A server always sends certificates. So nil means that there was no memory to keep them.
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
  /// The TLS results of this connection. Called after the handshake.
  public func facts() -> SecurityFacts {
    TLSFacts(
      version: ByteBuffer().say(cString: version), cipher: ByteBuffer().say(cString: cipher),
      alpn: ByteBuffer().say(alpn), isResumed: isResumed, chain: retainedPeerChain())
  }
}
