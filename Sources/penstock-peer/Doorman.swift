import CPenstockSystem
import PenstockTransport
import PenstockWire
import PenstockLink

/// A connection whose HTTP version is not known yet. In TLS the version is negotiated by ALPN. Otherwise the
/// first bytes show it: HTTP/2 begins with a preface that is not a request of HTTP/1.1 (RFC 9113 section
/// 3.4).
final class Doorman: Source {
  private let loop: Loop
  private let link: Link
  private let options: Options
  private let pool: CallPool
  private let number: Int
  private let first = ByteBuffer()
  private var isBlocked = false
  private var isGone = false

  private static let preface: StaticString = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

  init(_ loop: Loop, _ link: Link, _ options: Options, _ pool: CallPool, number: Int) {
    self.loop = loop
    self.link = link
    self.options = options
    self.pool = pool
    self.number = number
    super.init()
    fd = link.fd
  }

  func start() {
    if !loop.watch(self, CS_EPOLLIN) { link.close() }
  }

  override func ready(_ bits: UInt32) {
    while !isGone {
      switch link.receive(loop.receiveBuffer) {
      case .bytes(let bytes):
        guard first.append(bytes) else { return leave() }
        if let isHTTP2 = version() { return handOver(isHTTP2) }
      case .wouldBlock:
        // An HTTP/2 server sends its SETTINGS at once, without waiting for the client.
        if bytesEqual(link.agreedProtocol, "h2") { return handOver(true) }
        return flush()
      case .ended, .failed: return leave()
      }
    }
  }

  /// Whether the client speaks HTTP/2; nil: not known yet.
  private func version() -> Bool? {
    let agreed = link.agreedProtocol
    if bytesEqual(agreed, "h2") { return true }
    if !agreed.isEmpty || options.http == .http1 { return false }
    let preface = Doorman.preface.bytes
    let length = min(first.count, preface.count)
    guard bytesEqual(part(first.view, 0, length), part(preface, 0, length)) else {
      return options.http == .http2
    }
    return length == preface.count ? true : nil
  }

  private func handOver(_ isHTTP2: Bool) {
    isGone = true
    loop.forget(self)
    if isHTTP2 {
      Session.start(loop, link, options, pool, number: number, first: first.view)
    } else {
      Session1.start(loop, link, options, pool, number: number, first: first.view)
    }
  }

  /// Sends the bytes that TLS has made, such as handshake messages.
  private func flush() {
    let flushed = link.flush()
    if flushed == .failed { return leave() }
    if isBlocked == (flushed == .blocked) { return }
    isBlocked.toggle()
    loop.rewatch(self, isBlocked ? CS_EPOLLIN | CS_EPOLLOUT : CS_EPOLLIN)
  }

  private func leave() {
    isGone = true
    loop.forget(self)
    link.close()
  }

  override func stop() { leave() }
}
