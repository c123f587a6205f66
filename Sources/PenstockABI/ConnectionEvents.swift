import CPenstock
import PenstockJSON
import PenstockCall
import PenstockClient
import PenstockTransport
import PenstockWire

/// Calls an interceptor's `on_connection` with an event of its channel. `target` ends with a NUL.
func tell(_ news: ConnectionNews, to registration: Registration, of target: ByteBuffer) {
  guard let function = registration.onConnection else { return }
  // Copies that end with a NUL. If there is no memory for one, the callback gets NULL for it.
  let address = news.address.flatMap { terminated($0) }
  let words = news.words.flatMap { terminated($0) }
  let version = news.security.flatMap { terminated($0.version) }
  let cipher = news.security.flatMap { terminated($0.cipher) }
  let alpn = news.security.flatMap { terminated($0.alpn) }
  let interceptor = news.cause?.callback.flatMap { Registrations.name(of: $0.interceptor) }
  let line = JSON.dump(json(news, interceptor, target))
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
  event.level = news.kind.level.rawValue
  event.name = cString(news.kind.name)
  if let cause = news.cause {
    event.call = cause.call
    event.method = text(cause.path)
    event.interceptor = text(interceptor)
    if let callback = cause.callback { event.callback = cString(callbackName(callback.event)) }
  }
  event.json = line.map { UnsafePointer($0) }
  function(registration.userData.pointer, &event)
  withExtendedLifetime((target, address, words, version, cipher, alpn, interceptor)) {}
  penstock_free(line)
}

/// The event as a line of a log. `interceptor`: the name of the interceptor whose callback was slow.
private func json(_ news: ConnectionNews, _ interceptor: ByteBuffer?, _ target: ByteBuffer) -> JSON.Value? {
  JSON.object { object in
    object.set("time_ms", JSON.int(news.time))
    object.set("level", JSON.string(news.kind.level.name))
    object.set("event", JSON.string(news.kind.name))
    object.set("target", JSON.terminated(target))
    if let address = news.address { object.set("address", JSON.string(address.view)) }
    if let words = news.words { object.set("message", JSON.string(words.view)) }
    if news.milliseconds > 0 { object.set("ms", JSON.int(news.milliseconds)) }
    if let security = news.security {
      object.set("tls_version", JSON.string(security.version.view))
      object.set("tls_cipher", JSON.string(security.cipher.view))
      object.set("tls_alpn", JSON.string(security.alpn.view))
      object.set("tls_resumed", JSON.bool(security.isResumed))
    }
    if let connection = news.connection {
      object.set("protocol", JSON.string(connection.rpc.name))
      object.set("http", JSON.string(connection.http))
    }
    guard let cause = news.cause else { return }
    object.set("call", JSON.int(cause.call))
    object.set("method", JSON.terminated(cause.path))
    guard let callback = cause.callback else { return }
    object.set("interceptor", interceptor.map { JSON.terminated($0) } ?? JSON.null)
    object.set("callback", JSON.string(callbackName(callback.event)))
  }.value
}

extension ConnectionNews.Level {
  fileprivate var name: StaticString {
    switch self {
    case .debug: "debug"
    case .info: "info"
    case .warning: "warning"
    case .error: "error"
    }
  }
}

/// The name of the callback for an event, as the tables of callbacks have it.
private func callbackName(_ event: EventKind) -> StaticString {
  switch event {
  case .none: "none"
  case .start: "on_start"
  case .send: "on_send"
  case .halfClose: "on_half_close"
  case .headers: "on_headers"
  case .receive: "on_receive"
  case .status: "on_status"
  case .cancel: "on_cancel"
  case .demand: "on_demand"
  case .sent: "on_sent"
  case .create: "create"
  case .destroy: "destroy"
  case .pick: "on_pick"
  }
}

private func terminated(_ buffer: ByteBuffer) -> ByteBuffer? {
  guard let copy = ByteBuffer(copying: buffer.view), copy.append(byte: 0) else { return nil }
  return copy
}

private func text(_ terminated: ByteBuffer?) -> UnsafePointer<CChar>? {
  terminated?.view.baseAddress?.assumingMemoryBound(to: CChar.self)
}
