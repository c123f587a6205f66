import CSystem
import PenstockCall
import PenstockChannel
import PenstockWire

/// How a connection writes its request. All that there is to send leaves in one system call.
extension HTTP1Connection {
  /// How often, at most, the socket is filled in one turn.
  private static let writeRounds = 16
  private static let manyRecords = 128 << 10

  func write() {
    var rounds = HTTP1Connection.writeRounds
    while life != .closed, !isDeaf {
      guard collect() else { return }
      if link.isSent { break }
      switch send() {
      case .bytes(let n): if n > 0 { sentSome() }
      case .wouldBlock, .end: break
      case .failed(let code):
        isDeaf = true
        // An answer that the peer sent before its end may explain the failure.
        if !isPaused { receiveAll(HTTP1Connection.lastBudget) }
        if isPaused || life == .closed { return }
        return close(Link.lost(code, during))
      }
      rounds -= 1
      if !link.isSent || rounds == 0 { break }
    }
    if life == .closed { return }
    if rounds == 0 { wantsWrite() }
    if life == .sending, isBodyEnded, link.isSent { _ = life.handle(.requestSent) }
    if !isUnwatched { link.watch(input: !isPaused && !link.isClogged, output: !link.isSent && !isDeaf) }
  }

  /// Sends once. As long as the kernel has nothing of the request, an error has to tell that this is so.
  private func send() -> Socket.Moved {
    guard isUnsent, let engine = link.engine else { return link.send(HTTP1Connection.manyRecords) }
    guard link.makeRecords(engine, HTTP1Connection.manyRecords) else { return .failed(EPROTO) }
    let moved = link.socket.send(engine.output.view)
    if case .bytes(let n) = moved { engine.output.consume(n) }
    return moved
  }

  /// Keeps a piece of a request of which nothing was sent yet.
  @inline(never) @_optimize(size)
  func keepUnsent(_ piece: BodyPiece) {
    if isUnsent, life == .sending { unsent.append(piece) }
  }

  /// The kernel has got bytes.
  private func sentSome() {
    if !isUnsent || life != .sending { return }
    isUnsent = false
    unsent.removeAll()
  }

  @inline(never) @_optimize(size)
  private func lacksMemory() {
    stream?.finish(.noMemory)
    close(ByteBuffer().say("no memory to send"))
  }

  /// Moves what there is to send into the link, as far as there is room. False: the connection has closed, or has nothing
  /// more to send.
  private func collect() -> Bool {
    guard let stream, let pool else { return true }
    // More records are made only when the last have left, so that the waiting bytes stay bounded.
    if let engine = link.engine, !engine.output.isEmpty { return true }
    if life == .opening, !writeHead(stream, pool) { return false }
    guard life == .sending, !isBodyEnded else { return true }
    let count = min(stream.bytesToSend, 2 * pool.destination.limits.outputSize - link.out.count)
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
    isBodyEnded = true
    if body != .chunked || link.out.append(("0\r\n\r\n" as StaticString).bytes) { return true }
    lacksMemory()
    return false
  }

  /// Writes the head of the request. False: it can't be written, and the stream has ended.
  private func writeHead(_ stream: HTTP1Stream, _ pool: HTTP1Pool) -> Bool {
    let fields = pool.fields
    fields.clear()
    let opens = borrow(stream.owner) { $0.streamOpens(stream, fields) } == true
    let head = RequestHead(fields)
    if opens, let flaw = head.flaw() {
      refuse(.broken(flaw))
      return false
    }
    body = head.body(stream.bytesToSend, isWhole: stream.endsAfterPieces)
    guard opens, head.write(body, into: link.out.bytes) else {
      refuse(.noMemory)
      return false
    }
    unsent = stream.copyPieces()
    _ = life.handle(.headGiven)
    noteSending(stream)
    return true
  }

  private func noteSending(_ stream: HTTP1Stream) {
    if borrow(stream.owner, { $0.streamSends() }) == true { mark() }
  }

  /// Writes a chunk's size (RFC 9112 section 7.1).
  @inline(never) @_optimize(size)
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
