import COpenSSL
import PenstockWire

/// The versions of HTTP that a server speaks. Only the test server penstock-peer uses this type. It makes its
/// `TLSOptions` without ALPN, because with ALPN they would demand HTTP/2.
public struct ServerProtocols: OptionSet, Sendable {
  public let rawValue: UInt

  public init(rawValue: UInt) { self.rawValue = rawValue }

  public static var http1: ServerProtocols { ServerProtocols(rawValue: 1) }
  public static var http2: ServerProtocols { ServerProtocols(rawValue: 2) }
}

extension TLSContext {
  /// Makes a server choose HTTP/2 if the client offers it, or otherwise HTTP/1.1 (RFC 7301); `protocols` has
  /// the versions that the server may choose. A client that offers other protocols only is refused. A client
  /// without ALPN is accepted.
  public func choose(among protocols: ServerProtocols) {
    SSL_CTX_set_alpn_select_cb(
      handle,
      { _, selected, selectedCount, offered, offeredCount, argument in
        guard let offered, let selected, let selectedCount else { return SSL_TLSEXT_ERR_ALERT_FATAL }
        let protocols = ServerProtocols(rawValue: UInt(bitPattern: argument))
        let names: [(ServerProtocols, StaticString)] = [(.http2, "h2"), (.http1, "http/1.1")]
        for (version, name) in names where protocols.contains(version) {
          var at = 0
          while at < Int(offeredCount) {
            let length = Int(offered[at])
            let end = min(at + 1 + length, Int(offeredCount))
            if bytesEqual(ByteView(start: offered + at + 1, count: end - at - 1), name) {
              selected.pointee = offered + at + 1
              selectedCount.pointee = offered[at]
              return SSL_TLSEXT_ERR_OK
            }
            at += 1 + length
          }
        }
        return SSL_TLSEXT_ERR_ALERT_FATAL
      }, UnsafeMutableRawPointer(bitPattern: protocols.rawValue))
  }
}

extension TLSEngine {
  /// The protocol that was agreed by ALPN; empty: none.
  public var agreedProtocol: ByteView { alpn }
}
