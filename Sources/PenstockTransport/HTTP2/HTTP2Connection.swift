import CSystem
import PenstockCall
import PenstockWire

/// Who a connection reports to, on the driving thread.
protocol ConnectionOwner: AnyObject {
  /// HTTP/2 is established: the peer's SETTINGS have come.
  func connectionReady(_ connection: HTTP2Connection)
  /// It takes no new streams; those that it has go on.
  func connectionDraining(_ connection: HTTP2Connection)
  /// It is closed, last and once. Its streams are told after this.
  func connectionEnded(_ connection: HTTP2Connection, _ words: ByteBuffer)
}

/// One connection: socket, TLS if there is any, and the HTTP/2 session, moved by the loop.
///
/// ```
/// connecting --> handshaking (TLS) --> preface --the peer's SETTINGS--> open --> closed
///      \------------ error, end of stream, timeout (the owner's) --------------/
/// ```
/// Per turn: read what waits and tell the streams' owners, write once at the turn's end.
final class HTTP2Connection: TransportConnection, ReadyHandler, TurnTask {
  enum Phase: Equatable { case connecting, handshaking, preface, open, closed }

  let session: HTTP2Session
  /// "127.0.0.1:50051".
  let peer: ByteBuffer
  private(set) var phase = Phase.connecting
  override var facts: ConnectionFacts? { knownFacts }
  private lazy var knownFacts = ConnectionFacts(
    peer: peer, local: socket.localAddress.map { ByteBuffer().say($0.text()) }, security: engine?.facts())
  var isScheduled = false

  private let runtime: Runtime
  private let work: TurnWork
  private let socket: Socket
  private let engine: TLSEngine?
  private var owner: (any ConnectionOwner)?
  private var toldDraining = false
  private var watchesOutput = false
  private var ignoresInput = false
  /// What the session has said: to be sent, or to become records.
  private let out: SendQueue
  private let scratch: UnsafeMutableRawBufferPointer
  private let frames: FrameRead

  private static let scratchSize = 64 << 10
  private static let manyStreams = 256
  /// How much is read in one turn before others get theirs, and before credit goes back: more, and a peer that sends
  /// all that a stream's window allows waits for it (64 KiB messages down: 0.7 of the rate with 1 MiB).
  private static let readBudget = 256 << 10
  /// The same of a connection that is lost.
  private static let lastBudget = 1 << 20
  /// An event of TLS in frames: a key update is four, and takes as long as forty.
  private static let eventCost = 10
  /// With more records unsent than are made of what calls say, TLS itself has said so much: the peer is to read first.
  private static let mostRecords = 256 << 10
  /// How often one turn fills the socket.
  private static let writeRounds = 16
  /// How much becomes records at once; and where the peer waits for the first of them, as it has let us send no more.
  private static let manyRecords = 128 << 10
  private static let fewRecords = 32 << 10

  enum Started {
    case started(HTTP2Connection)
    case failed(ByteBuffer)
  }

  /// Begins to connect. The owner hears nothing from within this.
  @inline(never) @_optimize(size)
  static func start(
    _ address: SocketAddress, tls: TLSContext?, host: ByteBuffer, limits: HTTP2Limits, runtime: Runtime,
    work: TurnWork, owner: any ConnectionOwner
  ) -> Started {
    switch Socket.connect(to: address) {
    case .failed(let code): return .failed(ByteBuffer().say(errno: code))
    case .socket(let socket, let connecting):
      var engine: TLSEngine?
      if let tls {
        engine = TLSEngine.make(tls, host: host.view)
        if engine == nil { return .failed(TLSContext.reason("no TLS for the connection")) }
      }
      guard let session = HTTP2Session.make(limits, SocketTimes(socket)), let memory = malloc(scratchSize)
      else {
        return .failed(ByteBuffer().say("no memory for a connection"))
      }
      let scratch = UnsafeMutableRawBufferPointer(start: memory, count: scratchSize)
      let connection = HTTP2Connection(socket, engine, session, address, scratch, runtime, work, owner)
      let events = connecting ? CS_EPOLLOUT : CS_EPOLLIN
      guard runtime.watch(socket.descriptor, events, connection) else {
        connection.phase = .closed
        socket.close()
        return .failed(ByteBuffer().say("the system does not watch the socket"))
      }
      if !connecting { connection.connected() }
      return .started(connection)
    }
  }

  private init(
    _ socket: Socket, _ engine: TLSEngine?, _ session: HTTP2Session, _ address: SocketAddress,
    _ scratch: UnsafeMutableRawBufferPointer, _ runtime: Runtime, _ work: TurnWork,
    _ owner: any ConnectionOwner
  ) {
    self.socket = socket
    self.engine = engine
    self.session = session
    self.scratch = scratch
    frames = FrameRead(scratch)
    self.runtime = runtime
    self.work = work
    self.owner = owner
    peer = ByteBuffer().say(address.text())
    out = SendQueue(copies: engine != nil)
    super.init()
    confine(self)
  }

  deinit { free(scratch.baseAddress) }

  // MARK: Streams

  override func newStream(_ owner: StreamOwner, sending pieces: consuming PieceQueue) -> TransportStream {
    HTTP2Stream(owner, sending: pieces, on: self)
  }

  func add(_ stream: HTTP2Stream) {
    session.add(stream)
    wantsWrite()
  }

  /// There may be more to send on `stream`.
  @inline(never)
  func resume(_ stream: HTTP2Stream) {
    session.resume(stream)
    wantsWrite()
  }

  @inline(never)
  func consumed(_ stream: HTTP2Stream, _ count: Int) {
    session.consumed(stream, count)
    wantsWrite()
  }

  func letGo(_ stream: HTTP2Stream, _ why: Leave) {
    if session.letGo(stream, why) { wantsWrite() }
  }

  @inline(never)
  func wantsWrite() {
    if phase != .closed { work.scheduleWrite(self) }
  }

  // MARK: Events

  func ready(_ events: UInt32) {
    if phase == .connecting {
      let code = socket.connectError
      if code != 0 { return close(ByteBuffer().say(errno: code)) }
      if events & (CS_EPOLLERR | CS_EPOLLHUP) != 0 {
        return close(ByteBuffer().say("the connection broke off"))
      }
      runtime.rewatch(socket.descriptor, CS_EPOLLIN)
      return connected()
    }
    if events & ~CS_EPOLLOUT != 0 { receiveAll() }
    if phase == .closed { return }
    session.dispatch()
    noteDraining()
    if events & CS_EPOLLOUT != 0 || session.wantsWrite || !isSent { wantsWrite() }
  }

  private func connected() {
    phase = engine == nil ? .preface : .handshaking
    if let engine, engine.handshake() == .failed { return fail(engine) }
    wantsWrite()
  }

  /// `isLast`: the connection is lost, and what is in the kernel is all that will ever come.
  private func receiveAll(isLast: Bool = false) {
    var budget = isLast ? HTTP2Connection.lastBudget : HTTP2Connection.readBudget
    while budget > 0, phase != .closed {
      var place = scratch
      var capacity = 0
      if engine != nil {
        if isClogged { return }
        guard let spare = borrow(engine, { $0.input.spare(atLeast: HTTP2Connection.scratchSize / 2) }) ?? nil
        else { return close(ByteBuffer().say("no memory to receive")) }
        place = spare
      } else if let body = session.room(), frames.prepare(body, session, bytes: budget) {
        capacity = frames.capacity
      } else if session.open.count > HTTP2Connection.manyStreams {
        // Of many calls no more at once than what they have touched stays in the processor's cache.
        place = UnsafeMutableRawBufferPointer(rebasing: scratch.prefix(HTTP2Connection.scratchSize / 4))
      }
      let isAhead = capacity > 0
      if !isAhead { capacity = place.count }
      switch isAhead ? frames.receive(from: socket) : socket.receive(into: place) {
      case .wouldBlock: return
      case .end: return close(endOfStream())
      case .failed(let code): return lose(code)
      case .bytes(let n):
        if engine != nil {
          _ = borrow(engine) {
            $0.input.commit(n)
            receiveRecords($0)
          }
        } else if isAhead {
          receiveFrames(n)
        } else {
          receive(ByteView(rebasing: ByteView(place).prefix(n)))
        }
        budget -= n
        // A short read has emptied the socket; if not, the loop comes back.
        if n < capacity { return }
        // A message that is whole is told of before more is read, so that what follows it can go into the next one.
        // What nobody wants yet can as well wait in the kernel, and what has been asked for meanwhile is done first.
        session.dispatch()
        if !isLast, session.isBehind || runtime.hasPosted { return }
      }
    }
  }

  private func receiveFrames(_ n: Int) {
    let isDone = frames.deliver(n) {
      receive($0)
      return phase != .closed
    }
    if !isDone { close(ByteBuffer().say("no memory to receive")) }
  }

  private func receiveRecords(_ engine: TLSEngine) {
    if phase == .handshaking {
      switch engine.handshake() {
      case .needsMore: return wantsWrite()
      case .failed: return fail(engine)
      case .done:
        phase = .preface
        wantsWrite()
      }
    }
    while phase != .closed {
      let place = session.place() ?? scratch
      switch engine.read(into: place) {
      case .bytes(let n): receive(ByteView(rebasing: ByteView(place)[..<n]))
      case .needsMore:
        let events = engine.takeEvents()
        if events == 0 { return }
        session.charge(events * HTTP2Connection.eventCost)
        if session.failure != nil { return closeAfterFailure() }
      case .closed: return close(endOfStream())
      case .failed: return fail(engine)
      }
    }
  }

  @inline(never) @_optimize(size)
  private func fail(_ engine: TLSEngine) {
    // The alert that tells the peer why.
    if !isSent { _ = send() }
    close(engine.failure ?? ByteBuffer().say("TLS failed"))
  }

  @inline(never)
  private func receive(_ bytes: ByteView) {
    guard session.receive(bytes) else { return closeAfterFailure() }
    if phase == .preface && session.isReady {
      phase = .open
      owner?.connectionReady(self)
    }
  }

  /// The session has given up: what it has to say to the peer goes out if it can.
  @inline(never) @_optimize(size)
  private func closeAfterFailure() {
    let words = session.failure ?? ByteBuffer().say("HTTP/2 failed")
    if phase == .open {
      session.sayEnough()
      _ = pass()
    }
    if !isSent { _ = send() }
    close(words)
  }

  private func noteDraining() {
    guard phase == .open, session.isDraining, !toldDraining else { return finishDraining() }
    toldDraining = true
    owner?.connectionDraining(self)
    finishDraining()
  }

  private func finishDraining() {
    if phase == .open, session.isDraining, session.isIdle { closeGracefully() }
  }

  // MARK: Writing

  func runInTurn() {
    guard phase != .closed, phase != .connecting else { return }
    var rounds = HTTP2Connection.writeRounds
    while phase != .closed {
      let collected = phase == .handshaking ? .more : pass()
      if isSent {
        if collected == .failed { return closeAfterFailure() }
        break
      }
      switch send() {
      case .bytes, .wouldBlock, .end: break
      case .failed(let code):
        // What the peer said before it went may explain it better.
        receiveAll(isLast: true)
        if phase == .closed { break }
        return lose(code)
      }
      if phase == .closed { break }
      if collected == .failed { return closeAfterFailure() }
      if !isSent { break }
      rounds -= 1
      if rounds == 0 {
        wantsWrite()
        break
      }
      if phase == .handshaking || collected == .all || !session.wantsWrite { break }
    }
    watchOutput(!isSent)
    session.dispatch()
    noteDraining()
  }

  /// Moves what the session has to say into `out`.
  private func pass() -> Collected {
    guard let engine else { return session.collect(into: out) }
    // More only when the last has left, so that what waits stays bounded.
    guard isSent else { return engine.failure == nil ? .more : .failed }
    let collected = session.collect(into: out)
    return makeRecords(engine) ? collected : .failed
  }

  /// Of a part of `out` at a time. False: TLS has failed.
  private func makeRecords(_ engine: TLSEngine) -> Bool {
    let most = session.fillsWindow ? HTTP2Connection.fewRecords : HTTP2Connection.manyRecords
    let part = min(out.bytes.count, most)
    guard part == 0 || engine.write(ByteView(rebasing: out.bytes.view[..<part])) else { return false }
    out.consume(part)
    return true
  }

  /// The kernel has all that has been made so far.
  private var isSent: Bool { out.isEmpty && (engine.map { $0.output.isEmpty } ?? true) }

  private func send() -> Socket.Moved {
    guard let engine else { return socket.send(out) }
    while true {
      let outcome = socket.send(engine.output.view)
      guard case .bytes(let n) = outcome else { return outcome }
      engine.output.consume(n)
      if !engine.output.isEmpty || out.isEmpty || !makeRecords(engine) { return outcome }
    }
  }

  private func watchOutput(_ on: Bool) {
    let isClogged = on && isClogged
    guard phase != .closed, on != watchesOutput || isClogged != ignoresInput else { return }
    watchesOutput = on
    ignoresInput = isClogged
    runtime.rewatch(socket.descriptor, (isClogged ? 0 : CS_EPOLLIN) | (on ? CS_EPOLLOUT : 0))
  }

  private var isClogged: Bool { engine.map { $0.output.count > HTTP2Connection.mostRecords } ?? false }

  // MARK: The end

  private func during() -> StaticString {
    switch phase {
    case .handshaking: return " during the TLS handshake"
    case .preface: return " before HTTP/2 began"
    case .connecting, .open, .closed: return ""
    }
  }

  /// A guess at the reason of a peer that has ended the connection before HTTP/2 began.
  private func guess(_ text: ByteBuffer) -> ByteBuffer {
    switch phase {
    case .handshaking:
      if engine?.isUnanswered == true { text.say("; it sent nothing, and may not speak TLS") }
    case .preface:
      if let engine {
        engine.sayAsked(text)
      } else if session.tracker.opening.isEmpty {
        text.say("; it sent nothing, and may want TLS")
      }
    case .connecting, .open, .closed: break
    }
    return text
  }

  @inline(never) @_optimize(size)
  private func lose(_ code: Int32) {
    close(guess(ByteBuffer().say("the connection failed").say(during()).say(": ").say(errno: code)))
  }

  @inline(never) @_optimize(size)
  private func endOfStream() -> ByteBuffer {
    let text = ByteBuffer().say("connection closed by peer")
    if phase == .preface, !session.tracker.opening.isEmpty, !session.tracker.isMidFrame {
      return session.tracker.wrongPreface()
    }
    text.say(during())
    if let place = session.tracker.place() { text.say(" ").say(place.view) }
    if let goAway = session.goAway { text.say(", after ").say(goAway.view) }
    return guess(text)
  }

  /// The owner's time for connecting is over.
  @inline(never) @_optimize(size)
  func timedOut() {
    let words = ByteBuffer().say("connect timeout")
    switch phase {
    case .handshaking: words.say(" during the TLS handshake")
    case .preface: words.say(": the peer does not answer with HTTP/2")
    case .connecting, .open, .closed: break
    }
    close(words)
  }

  /// Closes at once: every stream that is open ends with `words`.
  @inline(never) @_optimize(size)
  func close(_ words: ByteBuffer) {
    guard phase != .closed else { return }
    phase = .closed
    runtime.unwatch(socket.descriptor)
    // A forked child may have the descriptor too: only this ends the connection.
    socket.shutdown()
    socket.close()
    out.removeAll()
    session.abandon(words)
    let told = owner
    owner = nil
    told?.connectionEnded(self, words)
    session.dispatch()
  }

  /// Tells the peer first (GOAWAY, close_notify). For an idle connection.
  @inline(never) @_optimize(size)
  func closeGracefully(_ words: ByteBuffer = ByteBuffer().say("the connection is no longer used")) {
    // Where the loop's descriptors were closed by somebody else, ours may be another file's too.
    if phase == .open, !runtime.hasLostDescriptors {
      session.sayGoodbye()
      _ = pass()
      engine?.close()
      if !isSent { _ = send() }
    }
    close(words)
  }

  /// In a forked child: nothing but the descriptor.
  func closeInChild() { socket.close() }
}

private final class SocketTimes: SessionTimes {
  private let socket: Socket

  init(_ socket: Socket) { self.socket = socket }

  override var roundTrip: UInt64 { UInt64(cs_round_trip(socket.descriptor)) * 1000 }
}
