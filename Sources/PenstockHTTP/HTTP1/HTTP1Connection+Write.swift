import CPenstockSystem
import PenstockCall
import PenstockWire
import PenstockLoop
import PenstockLink

/// The part of a connection that writes its request. All bytes that can be sent now are sent in one system
/// call.
extension HTTP1Connection {
  /// The most times that `write` fills the socket in one turn. After them, other connections are served.
  private static let writeRounds = 16
  private static let manyRecords = 128 << 10

  func write() {
    var rounds = HTTP1Connection.writeRounds
    while life != .closed, !life.isDeaf {
      guard collect() else { return }
      if link.isSent { break }
      switch send() {
      case .bytes(let n): if n > 0 { follow(.sentSome) }
      case .wouldBlock, .end: break
      case .failed(let code):
        let during = life.during
        follow(.writeFailed)
        // The peer may have sent an answer before it closed the connection, and the answer may explain the
        // failure.
        if !reading.isPaused { receiveAll(HTTP1Connection.lastBudget) }
        if life == .closed { return }
        return reading.isPaused ? watch() : close(Link.lost(code, during))
      }
      rounds -= 1
      if !link.isSent || rounds == 0 { break }
    }
    if life == .closed { return }
    if rounds == 0 { wantsWrite() }
    if link.isSent { follow(.sentAll) }
    watch()
  }

  /// Sends once. While the kernel has no byte of the request, TLS records are sent in a single system call.
  /// If that call fails, certainly no byte of the request was sent.
  private func send() -> Socket.Moved {
    guard life.isUnsent, let engine = link.engine else { return link.send(HTTP1Connection.manyRecords) }
    guard link.makeRecords(engine, HTTP1Connection.manyRecords) else { return .failed(EPROTO) }
    let moved = link.socket.send(engine.output.view)
    if case .bytes(let n) = moved { engine.output.consume(n) }
    return moved
  }

  /// Stores a copy of a piece of the body, as long as no byte of the request was sent. Another connection can
  /// then send the request.
  func copyUnsent(_ piece: BodyPiece) {
    if life.isUnsent { unsent.append(piece) }
  }

  private func lacksMemory() {
    stream?.finish(.noMemory)
    close(ByteBuffer().say("no memory to send"))
  }

  /// Moves the bytes of the request to the link's output, up to the size of the output. False: the connection
  /// has closed, or the request can't be written.
  private func collect() -> Bool {
    guard let stream, let pool else { return true }
    // New TLS records are made only when all earlier records were sent. So the waiting bytes stay bounded.
    if let engine = link.engine, !engine.output.isEmpty { return true }
    if life == .opening, !writeHead(stream, pool) { return false }
    guard let body = life.body else { return true }
    let count = min(stream.bytesToSend, 2 * pool.settings.limits.outputSize - link.out.count)
    if count > 0 {
      guard body != .chunked || addSize(count), stream.moveBody(count, into: link.out),
        body != .chunked || link.out.append(("\r\n" as StaticString).bytes)
      else {
        lacksMemory()
        return false
      }
      noteSending(stream)
    }
    guard stream.endsAfterPieces, stream.bytesToSend == 0 else { return true }
    follow(.bodyEnded)
    if body != .chunked || link.out.append(("0\r\n\r\n" as StaticString).bytes) { return true }
    lacksMemory()
    return false
  }

  /// Writes the head of the request. False: the head can't be written, and the stream has ended.
  private func writeHead(_ stream: HTTP1Stream, _ pool: HTTP1Owner) -> Bool {
    let fields = pool.fields
    fields.clear()
    let opens = borrow(stream.owner) { $0.streamOpens(stream, fields) } == true
    let head = RequestHead(fields)
    if opens, let flaw = head.flaw() {
      refuse(.broken(flaw))
      return false
    }
    let body = head.body(stream.bytesToSend, isWhole: stream.endsAfterPieces)
    guard opens, head.write(body, pool.forwarding, into: link.out.bytes) else {
      refuse(.noMemory)
      return false
    }
    unsent = stream.copyPieces()
    follow(.headGiven(isChunked: body == .chunked))
    noteSending(stream)
    return true
  }

  private func noteSending(_ stream: HTTP1Stream) {
    if borrow(stream.owner, { $0.streamSends() }) == true { mark() }
  }

  /// Writes the line with a chunk's size (RFC 9112 section 7.1).
  private func addSize(_ count: Int) -> Bool {
    var shift = (Int.bitWidth - 1 - count.leadingZeroBitCount) & ~3
    guard let space = link.out.bytes.spare(atLeast: 18) else { return false }
    var at = 0
    while shift >= 0 {
      let digit = UInt8(truncatingIfNeeded: count >> shift & 15)
      space[at] = digit < 10 ? 0x30 + digit : 0x57 + digit
      shift -= 4
      at += 1
    }
    space[at] = 0x0D
    space[at + 1] = 0x0A
    link.out.bytes.commit(at + 2)
    return true
  }
}
