import CPenstockOpenSSL
import PenstockWire

/// The TLS 1.3 sessions that later connections may resume. They belong to one `TLSContext`, so a change of
/// roots, pins or certificates begins without any. An engine keeps to those that there were when it was made: a
/// ticket comes after the handshake, perhaps when the context has forgotten these. One thread at a time.
final class TLSSessions {
  private struct Kept {
    let session: OpaquePointer
    /// The name for which the server's certificate was verified, with a NUL at its end.
    let name: ByteBuffer?
  }

  /// A server sends two tickets as a rule; several servers may be behind one name.
  private static let most = 16
  /// The latest is the last.
  private var all: [Kept] = []

  deinit { for one in all { SSL_SESSION_free(one.session) } }

  /// Keeps a session, whose reference it takes over.
  func put(_ session: OpaquePointer, for name: ByteBuffer?) {
    if all.count == TLSSessions.most { SSL_SESSION_free(all.removeFirst().session) }
    all.append(Kept(session: session, name: name))
  }

  /// Takes out the latest session for `name`, because a ticket is used once (RFC 8446 appendix C.4). The
  /// caller frees it. A session does not outlive the certificate that was verified for it.
  func take(for name: ByteBuffer?) -> OpaquePointer? {
    while let index = all.lastIndex(where: { TLSSessions.isEqual($0.name, name) }) {
      let session = all.remove(at: index).session
      if penstock_session_is_current(session) == 1, SSL_SESSION_is_resumable(session) == 1 { return session }
      SSL_SESSION_free(session)
    }
    return nil
  }

  private static func isEqual(_ a: ByteBuffer?, _ b: ByteBuffer?) -> Bool {
    guard let a, let b else { return a == nil && b == nil }
    return bytesEqual(a.view, b.view)
  }
}
