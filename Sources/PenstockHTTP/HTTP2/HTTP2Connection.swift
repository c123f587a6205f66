import CPenstockSystem
import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLoop
import PenstockNames
import PenstockLink

/// One connection: a link (a connected socket, perhaps with TLS) and the HTTP/2 session on it. The event loop
/// drives it.
///
/// ```
/// preface --the peer's SETTINGS--> open --no new streams--> draining --no stream left--> closed
/// preface, open, draining --error, end of stream, close by the owner--> closed
/// ```
///
/// In each turn of the loop the connection reads the waiting bytes and reports the changes to the streams'
/// owners. It writes once, at the end of the turn.
public final class HTTP2Connection: TransportConnection, TurnTask {
  public enum Phase { case preface, open, draining, closed }

  let session: HTTP2Session
  /// The peer's address, such as "127.0.0.1:50051".
  public let peer: ByteBuffer
  public private(set) var phase = Phase.preface
  public override var facts: ConnectionFacts? { knownFacts }
  private let knownFacts: ConnectionFacts
  public var isScheduled = false
  /// The timer that pings the peer; nil: the channel has no keepalive, or the peer's SETTINGS have not been
  /// received.
  private var keepalive: KeepaliveTimer?
  /// Whether the timer `keepalive` is asleep, so that the next stream has to wake it.
  private var wakesKeepalive = false
  /// The timer for the session's quota; nil: the peer has not refused a stream so far.
  var quotaTimer: QuotaTimer?
  /// The time when the socket was last found without bytes while there was no call.
  var lookedAt: UInt64 = 0

  public let runtime: Runtime
  private let work: TurnWork
  private let settings: ConnectionSettings
  public let link: Link
  private var owner: (any ConnectionOwner)?
  private let scratch: UnsafeMutableRawBufferPointer
  private let frames: FrameRead

  private static let scratchSize = 64 << 10
  private static let manyStreams = 256
  /// The number of bytes that are read in one turn before other connections are served, and before credit is
  /// returned to the peer. With a larger budget, a peer that has used up a stream's window would wait for
  /// credit: with 1 MiB, the rate of 64 KiB messages from the server falls to 0.7 of the present rate.
  private static let readBudget = 256 << 10
  /// The most bytes that are read after the connection was lost.
  private static let lastBudget = 1 << 20
  /// The debt (PeerDebt.swift) for one TLS event, in frames. A key update is four events, and takes as long
  /// as forty frames.
  private static let eventCost = 10
  /// The most times that the socket's send buffer is filled in one turn.
  private static let writeRounds = 16
  /// The number of bytes that become TLS records at once. The smaller number applies if the last DATA frame
  /// has used up a window: the peer can then begin earlier to read the records and to return credit.
  private static let manyRecords = 128 << 10
  private static let fewRecords = 32 << 10

  /// Makes a connection; nil: no memory. (In Embedded Swift an initializer that returns nil leaks its object.)
  public static func make(
    _ link: Link, _ peer: ByteBuffer, _ runtime: Runtime, _ work: TurnWork, _ settings: ConnectionSettings,
    _ rpc: RPCProtocol, _ owner: any ConnectionOwner
  ) -> HTTP2Connection? {
    guard
      let session = HTTP2Session.make(settings.limits, SocketTimes(link.socket, runtime.platform)),
      let memory = malloc(scratchSize)
    else { return nil }
    let scratch = UnsafeMutableRawBufferPointer(start: memory, count: scratchSize)
    return HTTP2Connection(link, session, scratch, peer, runtime, work, settings, rpc, owner)
  }

  private init(
    _ link: Link, _ session: HTTP2Session, _ scratch: UnsafeMutableRawBufferPointer, _ peer: ByteBuffer,
    _ runtime: Runtime, _ work: TurnWork, _ settings: ConnectionSettings, _ rpc: RPCProtocol,
    _ owner: any ConnectionOwner
  ) {
    self.link = link
    self.session = session
    self.peer = peer
    self.scratch = scratch
    frames = FrameRead(scratch)
    self.runtime = runtime
    self.work = work
    self.settings = settings
    knownFacts = ConnectionFacts(
      peer: peer, local: link.socket.localAddress.map { ByteBuffer().say($0.text()) },
      security: link.engine?.facts(), rpc: rpc)
    self.owner = owner
    super.init()
    confine(self)
    knownFacts.heardAt.set(runtime.now)
    knownFacts.openedAt.set(runtime.lastNow)
  }

  public override func begin() {
    runtime.hand(link.socket.descriptor, to: self)
    wantsWrite()
    let input = link.input
    if input.isEmpty { return }
    if let engine = link.engine {
      receiveRecords(engine)
    } else {
      receive(input.view)
      input.removeAll(keepingCapacity: false)
    }
    if phase == .closed { return }
    session.dispatch()
    tellOwner()
  }

  deinit { free(scratch.baseAddress) }

  // MARK: Streams

  public override var slots: Int { hasUnread ? 0 : session.slots }
  public override func sayFull(_ text: ByteBuffer) {
    guard session.isLowered else { return super.sayFull(text) }
    text.say("the channel's own limit to allow one more call on the connection")
    text.say(" (the server has refused calls: REFUSED_STREAM)")
  }
  public override func look() {
    if !hasUnread, session.open.count + session.queuedCount == (isWatched ? 1 : 0) { askSocket() }
  }
  public override var drainReason: ByteBuffer? { session.drainReason }
  public override var hasAnswered: Bool { session.hasAnswered }
  public override func forgetAnswer() { session.hasAnswered = false }

  public override var views: [ConnectionView] {
    let state: ConnectionView.State
    switch phase {
    case .preface: state = .connecting
    case .open: state = .ready
    case .draining: state = .draining
    case .closed: state = .closed
    }
    var view = ConnectionView(
      state, knownFacts, streams: session.open.count, allowed: session.streamLimit, opened: session.opened,
      sentBytes: link.sentBytes, receivedBytes: link.receivedBytes)
    view.waiting = session.queuedCount
    view.http2 = session.view
    return [view]
  }

  public override func newStream(_ owner: StreamOwner, sending pieces: consuming PieceQueue)
    -> TransportStream
  {
    HTTP2Stream(owner, sending: pieces, on: self)
  }

  func add(_ stream: HTTP2Stream) {
    session.add(stream)
    wantsWrite()
  }

  /// Called when the owner of `stream` may have more bytes to send.
  func resume(_ stream: HTTP2Stream) {
    session.resume(stream)
    wantsWrite()
  }

  func consumed(_ stream: HTTP2Stream, _ count: Int) {
    session.consumed(stream, count)
    wantsWrite()
  }

  func letGo(_ stream: HTTP2Stream, _ why: Leave) {
    if session.letGo(stream, why) { wantsWrite() }
  }

  func wantsWrite() {
    if phase != .closed { work.scheduleWrite(self) }
  }

  // MARK: Events

  public override func ready(_ events: UInt32) {
    if events & ~CS_EPOLLOUT != 0 { receiveAll() }
    if phase == .closed { return }
    session.dispatch()
    tellOwner()
    if events & CS_EPOLLOUT != 0 || session.wantsWrite || !link.isSent { wantsWrite() }
  }

  /// Reads and handles all waiting bytes, up to a budget. `isLast`: the connection is lost, so the only bytes
  /// left are those that the kernel has already received.
  func receiveAll(isLast: Bool = false) {
    var budget = isLast ? HTTP2Connection.lastBudget : HTTP2Connection.readBudget
    while budget > 0, phase != .closed {
      var space = scratch
      var capacity = 0
      if link.engine != nil {
        if link.isClogged { return }
        guard
          let spare = borrow(link.engine, { $0.input.spare(atLeast: HTTP2Connection.scratchSize / 2) }) ?? nil
        else { return close(ByteBuffer().say("no memory to receive")) }
        space = spare
      } else if let body = session.messageSpace(), frames.prepare(body, session, bytes: budget) {
        capacity = frames.capacity
      } else if session.open.count > HTTP2Connection.manyStreams {
        // With many calls the reads are short, so that the memory that the bytes and calls use stays in the
        // processor's cache.
        space = UnsafeMutableRawBufferPointer(rebasing: scratch.prefix(HTTP2Connection.scratchSize / 4))
      }
      let isAhead = capacity > 0
      if !isAhead { capacity = space.count }
      switch isAhead ? frames.receive(from: link.socket) : link.socket.receive(into: space) {
      case .wouldBlock: return
      case .end: return close(endOfStream())
      case .failed(let code): return lose(code)
      case .bytes(let n):
        knownFacts.heardAt.set(runtime.lastNow)
        link.receivedBytes &+= UInt64(n)
        if link.engine != nil {
          _ = borrow(link.engine) {
            $0.input.commit(n)
            receiveRecords($0)
          }
        } else if isAhead {
          receiveFrames(n)
        } else {
          receive(ByteView(rebasing: ByteView(space).prefix(n)))
        }
        budget -= n
        // A read that does not fill the space has usually emptied the socket. If it has not, epoll reports
        // the rest.
        if n < capacity {
          if session.isIdle { lookedAt = runtime.clock }
          return
        }
        // Owners get a whole message before the next read, so that the bytes after it can be received
        // directly into the next message. Reading stops if a call has not taken its bytes yet, even if the
        // kernel has more bytes. It also stops if items were posted to the loop in the meantime, because new
        // requests go first.
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
    while phase != .closed {
      let space = session.space() ?? scratch
      switch engine.read(into: space) {
      case .bytes(let n): receive(ByteView(rebasing: ByteView(space)[..<n]))
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

  private func fail(_ engine: TLSEngine) {
    // Sends the TLS alert that tells the peer the reason for the failure.
    link.flush()
    close(engine.failure ?? ByteBuffer().say("TLS failed"))
  }

  private func receive(_ bytes: ByteView) {
    guard session.receive(bytes) else { return closeAfterFailure() }
    if phase == .preface, session.isReady {
      phase = .open
      beginKeepalive()
      owner?.connectionReady(self)
    }
  }

  /// Closes the connection after the session has failed. First sends the session's last frames, such as
  /// GOAWAY, as far as the socket accepts them.
  private func closeAfterFailure() {
    let words = session.failure ?? ByteBuffer().say("HTTP/2 failed")
    if phase == .open || phase == .draining {
      session.sayFailure()
      _ = pass()
    }
    link.flush()
    close(words)
  }

  @inline(__always)
  func tellOwner() {
    if isAsked, session.slots > 0 { tellSlots() }
    if session.phase == .draining { tellDraining() }
    if session.hasQuota { watchQuota() }
  }

  private func tellSlots() {
    isAsked = false
    owner?.connectionHasSlots()
  }

  private func tellDraining() {
    if session.hearsTooManyPings { slowDown(keepalive) }
    if phase == .open {
      phase = .draining
      owner?.connectionDraining(self)
    }
    if phase == .draining, session.isIdle { closeGracefully() }
  }

  // MARK: Writing

  public func runInTurn() {
    if hasUnread { readUnread() }
    if phase == .closed { return }
    if wakesKeepalive { wakeKeepalive() }
    var rounds = HTTP2Connection.writeRounds
    while phase != .closed {
      let collected = pass()
      if link.isSent {
        if collected == .failed { return closeAfterFailure() }
        break
      }
      switch link.send(most) {
      case .bytes, .wouldBlock, .end: break
      case .failed(let code):
        // The peer may have sent bytes before it closed the connection, and these may explain the failure
        // better.
        receiveAll(isLast: true)
        if phase == .closed { break }
        return lose(code)
      }
      if phase == .closed { break }
      if collected == .failed { return closeAfterFailure() }
      if !link.isSent { break }
      rounds -= 1
      if rounds == 0 {
        wantsWrite()
        break
      }
      if collected == .all || !session.wantsWrite { break }
    }
    if phase != .closed { link.watchOutput(!link.isSent) }
    session.dispatch()
    tellOwner()
  }

  /// Moves the frames of the session to the link's output.
  private func pass() -> Collected {
    guard let engine = link.engine else { return session.collect(into: link.out) }
    // New TLS records are made only when the earlier records have been sent, so that the number of waiting
    // bytes stays limited.
    guard link.isSent else { return engine.failure == nil ? .more : .failed }
    let collected = session.collect(into: link.out)
    return link.makeRecords(engine, most) ? collected : .failed
  }

  /// The number of bytes that now become TLS records at once.
  private var most: Int { session.fillsWindow ? HTTP2Connection.fewRecords : HTTP2Connection.manyRecords }

  // MARK: Keepalive

  private func beginKeepalive() {
    let timer: KeepaliveTimer
    if let keepalive = settings.keepalive {
      link.socket.limitUnacknowledged(keepalive.timeout)
      timer = KeepaliveTimer(keepalive, self, settings, runtime)
    } else if settings.silence > 0, owner?.hasListeners ?? false {
      timer = KeepaliveTimer(listening: settings.silence, self, settings, runtime)
    } else {
      return
    }
    keepalive = timer
    wakesKeepalive = !timer.follow(.opened(keepaliveView))
  }

  private func wakeKeepalive() {
    if let keepalive, !session.isIdle { wakesKeepalive = !keepalive.follow(.opened(keepaliveView)) }
  }

  /// Called when the timer `keepalive` is due.
  func keepaliveDue() {
    if let keepalive { wakesKeepalive = !keepalive.follow(.time(keepaliveView)) }
  }

  var keepaliveView: KeepaliveView {
    // For pings, the stream of a health check counts as a call. In a channel without pings, which only
    // reports silence, the stream of a health check does not count as a call.
    let others = isWatched && settings.keepalive == nil ? 1 : 0
    return KeepaliveView(
      heard: knownFacts.heardAt.value, hasCalls: session.open.count + session.queuedCount > others,
      isAnswered: session.isPingAnswered)
  }

  public func ping() {
    session.ping()
    tellSilence()
    wantsWrite()
  }

  func tellSilence() { owner?.connectionSilent(runtime.now &- knownFacts.heardAt.value) }

  /// Closes the connection, because the peer has not answered a PING within `timeout` nanoseconds.
  func die(_ timeout: UInt64) {
    let silent = runtime.now &- knownFacts.heardAt.value
    close(
      ByteBuffer().say("no answer to a keepalive ping from ").say(peer.view).say(" within ")
        .say(unsigned: timeout / 1_000_000).say(" ms; nothing has come from there for ")
        .say(unsigned: silent / 1_000_000).say(" ms"))
  }

  // MARK: The end

  private var during: StaticString { phase == .preface ? " before HTTP/2 began" : "" }

  /// Adds to `text` a likely reason why the peer closed the connection before it sent its SETTINGS.
  private func guess(_ text: ByteBuffer) -> ByteBuffer {
    guard phase == .preface else { return text }
    if let engine = link.engine {
      engine.sayAsked(text)
    } else if session.tracker.opening.isEmpty, owner?.hasWorked == false {
      text.say("; it sent nothing, and may want TLS")
    }
    return text
  }

  private func lose(_ code: Int32) { close(guess(Link.lost(code, during))) }

  private func endOfStream() -> ByteBuffer {
    if phase == .preface, !session.tracker.opening.isEmpty, !session.tracker.isMidFrame {
      return session.tracker.wrongPreface()
    }
    let text = Link.ended(during)
    if let position = session.tracker.position() { text.say(" ").say(position.view) }
    if let goAway = session.goAway { text.say(", after ").say(goAway.view) }
    return guess(text)
  }

  /// Called when the peer has complained about too many PINGs: later connections send fewer.
  private func slowDown(_ keepalive: KeepaliveTimer?) {
    keepalive?.slowDown()
    settings.limits.mostWindow = 0
  }

  public override func timedOut() {
    close(ByteBuffer().say("connect timeout: the peer does not answer with HTTP/2"))
  }

  /// Closes the connection at once. Every open stream ends with the error text `words`.
  public func close(_ words: ByteBuffer) {
    guard phase != .closed else { return }
    phase = .closed
    if let keepalive = keepalive.take() {
      if session.hearsTooManyPings { slowDown(keepalive) }
      keepalive.end()
    }
    if let timer = quotaTimer.take() { runtime.disarm(timer) }
    link.close()
    session.abandon(words)
    let told = owner
    owner = nil
    told?.connectionEnded(self, words)
    session.dispatch()
  }

  public override func drain() {
    session.drain()
    session.endQueued(ByteBuffer().say("the channel does not use this address any more"))
    wantsWrite()
  }

  /// Closes the connection with GOAWAY and, if it uses TLS, close_notify. Streams that are still open end,
  /// too.
  public override func closeGracefully() {
    // If other code in the program has closed the loop's descriptors, the socket's number may belong to
    // another file by now. So nothing is written to it then.
    if phase == .open || phase == .draining, !runtime.hasLostDescriptors {
      session.sayGoodbye()
      _ = pass()
      link.engine?.close()
      link.flush()
    }
    close(ByteBuffer().say("the connection is no longer used"))
  }

  public override func closeInChild() { link.socket.close() }
}
