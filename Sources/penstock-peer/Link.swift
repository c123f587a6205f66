import CPenstockSystem
import PenstockChannel
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockLink

/// Receives and sends the bytes of one connection, through TLS if the peer uses TLS.
final class Link {
  enum Received {
    case bytes(ByteView)
    case wouldBlock
    case ended
    case failed
  }

  enum Flushed: Equatable {
    case done, blocked, failed
    /// The TLS handshake is not done, so nothing can be sent yet. It needs more bytes from the client.
    case handshaking
  }

  private(set) var fd: Int32
  /// The plaintext that waits to be sent.
  let output: SendQueue
  private let tls: TLSEngine?
  private var isOpen: Bool

  /// The room in bytes for TLS records that must be free before each read from the socket.
  private static let recordsSize = 64 << 10

  var isCleartext: Bool { tls == nil }

  /// The protocol that was agreed by ALPN; empty: none, or the handshake is not done.
  var agreedProtocol: ByteView {
    guard isOpen, let tls else { return ByteView(start: nil, count: 0) }
    return tls.alpn
  }

  /// Whether more than `most` bytes wait to be sent, so that no more bytes should be made.
  var isFull: Bool { output.bytes.count + (tls.map { $0.output.count } ?? 0) > Link.most }
  private static let most = 1 << 20

  init(_ fd: Int32, _ tls: TLSEngine?) {
    self.fd = fd
    self.tls = tls
    output = SendQueue(copies: tls != nil)
    isOpen = tls == nil
  }

  deinit { close() }

  func close() {
    cs_close(fd)
    fd = -1
  }

  /// Receives plaintext into `space`, where it is valid until `space` is used again. The caller repeats the
  /// call until it returns `wouldBlock`.
  func receive(_ space: UnsafeMutableRawBufferPointer) -> Received {
    guard let tls else { return receiveRaw(space) }
    while true {
      if isOpen {
        switch tls.read(into: space) {
        case .bytes(let n): return .bytes(part(ByteView(space), 0, n))
        case .needsMore: break
        case .closed: return .ended
        case .failed: return .failed
        }
      }
      guard let spare = tls.input.spare(atLeast: Link.recordsSize) else { return .failed }
      switch receiveRaw(spare) {
      case .bytes(let bytes): tls.input.commit(bytes.count)
      case .wouldBlock: return .wouldBlock
      case .ended: return .ended
      case .failed: return .failed
      }
      if !isOpen {
        switch tls.handshake() {
        case .needsMore: if sendRaw(tls.output) == .failed { return .failed }
        case .done: isOpen = true
        case .failed:
          _ = sendRaw(tls.output)
          return .failed
        }
      }
    }
  }

  private func receiveRaw(_ space: UnsafeMutableRawBufferPointer) -> Received {
    while true {
      let n = cs_recv(fd, space.baseAddress, space.count)
      if n > 0 { return .bytes(part(ByteView(space), 0, Int(n))) }
      if n == 0 { return .ended }
      if n == -Int64(EINTR) { continue }
      return n == -Int64(EAGAIN) ? .wouldBlock : .failed
    }
  }

  func flush() -> Flushed {
    guard let tls else { return sendAll { output.isEmpty ? nil : output.send(to: fd) } }
    if !isOpen {
      let sent = sendRaw(tls.output)
      return sent == .done ? .handshaking : sent
    }
    if !output.isEmpty {
      guard tls.write(output.bytes.view) else { return .failed }
      output.removeAll()
    }
    return sendRaw(tls.output)
  }

  private func sendRaw(_ bytes: ByteBuffer) -> Flushed {
    sendAll {
      if bytes.isEmpty { return nil }
      let n = Int(cs_send(fd, bytes.view.baseAddress, bytes.count))
      bytes.consume(n)
      return n
    }
  }

  /// Repeats `step` until everything is sent. `step` sends some bytes, and returns their number or -errno;
  /// nil: there is nothing left to send.
  private func sendAll(_ step: () -> Int?) -> Flushed {
    while let n = step() {
      if n == -Int(EAGAIN) { return .blocked }
      if n <= 0 && n != -Int(EINTR) { return .failed }
    }
    return .done
  }

  /// Sends `times` messages of TLS 1.3: session tickets, or key updates. Each key update asks the client for
  /// a key update in return.
  func say(_ message: Script.TLSMessage, times: Int) {
    guard let tls else { return }
    for _ in 0..<times {
      switch message {
      case .keyUpdate: tls.updateKeys()
      case .ticket: tls.sendTicket()
      }
    }
  }

  /// Ends the sending direction of the connection. With TLS, sends close_notify first.
  func halfClose() {
    if let tls {
      tls.close()
      _ = sendRaw(tls.output)
    }
    _ = shutdown(fd, 1)  // SHUT_WR
  }

  /// Makes the later close of the descriptor send RST instead of FIN.
  func makeCloseAbrupt() {
    var value = linger(l_onoff: 1, l_linger: 0)
    _ = setsockopt(fd, SOL_SOCKET, SO_LINGER, &value, socklen_t(MemoryLayout<linger>.size))
  }
}
