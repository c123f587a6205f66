import CPenstock
import PenstockCall
import PenstockTransport
import PenstockWire

/// Calls an interceptor's `on_connection` with an event of a channel's connections. `target` ends with a NUL.
func tell(_ news: ConnectionNews, to registration: Registration, of target: ByteBuffer) {
  guard let function = registration.onConnection else { return }
  // Copies that end with a NUL. If there is no memory for one, the callback gets NULL for it.
  let address = news.address.flatMap { terminated($0) }
  let words = news.words.flatMap { terminated($0) }
  let version = news.security.flatMap { terminated($0.version) }
  let cipher = news.security.flatMap { terminated($0.cipher) }
  let alpn = news.security.flatMap { terminated($0.alpn) }
  var event = penstock_connection_event()
  event.struct_size = MemoryLayout<penstock_connection_event>.size
  event.kind = news.kind.rawValue
  event.target = text(target)
  event.address = text(address)
  event.message = text(words)
  event.ms = news.milliseconds
  event.tls_version = text(version)
  event.tls_cipher = text(cipher)
  event.tls_alpn = text(alpn)
  if let connection = news.connection {
    event.protocol = cString(connection.rpc.name)
    event.http = cString(connection.http)
  }
  function(registration.userData.pointer, &event)
  withExtendedLifetime((target, address, words, version, cipher, alpn)) {}
}

private func terminated(_ buffer: ByteBuffer) -> ByteBuffer? {
  guard let copy = ByteBuffer(copying: buffer.view), copy.append(byte: 0) else { return nil }
  return copy
}

private func text(_ terminated: ByteBuffer?) -> UnsafePointer<CChar>? {
  terminated?.view.baseAddress?.assumingMemoryBound(to: CChar.self)
}
