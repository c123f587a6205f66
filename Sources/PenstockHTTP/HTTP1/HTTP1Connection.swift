import CPenstockSystem
import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLoop
import PenstockNames
import PenstockLink

/// One connection of a pool. It has a link, and at most one request with its answer at a time.
///
/// In each turn the connection reads the waiting bytes, tells the stream's owner, and at the end writes once. It stops
/// reading while the stream keeps a whole window of bytes that the owner has not taken. Its state is a pair: `life` says
/// what has become of the call, and `reading` when bytes are read.
public final class HTTP1Connection: ReadyHandler, TurnTask {
  public internal(set) var life = HTTP1Life.idle
  private(set) var reading = HTTP1Reading.flowing(peerHasEnded: false)
  public let facts: ConnectionFacts
  /// `next`: the next connection in the pool's list of connections. `below`: the next one in the list of idle ones.
  public var next: HTTP1Connection?
  public var below: HTTP1Connection?
  /// The time when the present request was assigned or, if the connection is idle, when the last request ended.
  public private(set) var since: UInt64
  /// The time when listeners were last told that the connection is silent.
  public var silentAt: UInt64 = 0
  /// Whether the end of the connection counts as a failed attempt to connect. It does not if a byte of an answer was
  /// received, if this side gives the connection up without a fault of the peer (its call leaves before the answer
  /// is complete, or it is closed gracefully), or if the connection ends after some time without a request.
  public private(set) var isUnproven = true
  public var isScheduled = false
  /// How many requests the connection has had.
  private var requests: UInt64 = 0

  public let link: Link
  let parser: ResponseParser
  public private(set) var pool: HTTP1Owner?
  /// The stream of the present request; nil: there is no request. It is nil, too, while `giveUp` reads the rest of an
  /// answer.
  public private(set) var stream: HTTP1Stream?
  /// The stream whose owner `tell` has to tell that the stream has changed.
  private var changed: HTTP1Stream?
  /// A copy of the body's pieces, as long as the kernel has accepted no byte of the request.
  var unsent = PieceQueue()
  private var behind = 0  // The number of received bytes after the bytes that are being parsed.
  /// The number of TLS's own messages, such as key updates, since the last bytes of an answer.
  private var eventsWithoutUse = 0

  /// The most bytes that are read in one turn before other connections are served.
  public static let readBudget = 256 << 10
  /// The most bytes that are read after a write has failed.
  static let lastBudget = 1 << 20
  /// The most bytes that are read of an unwanted answer. If it is complete then, the connection is kept.
  private static let restBudget = 64 << 10
  private static let leastSpace = 4096
  static let lately: UInt64 = 20_000

  public init(_ link: Link, _ peer: ByteBuffer, _ pool: HTTP1Owner) {
    self.link = link
    self.pool = pool
    parser = ResponseParser(maxHeaderList: pool.settings.limits.maxHeaderList)
    facts = ConnectionFacts(
      peer: peer, local: link.socket.localAddress.map { ByteBuffer().say($0.text()) },
      security: link.engine?.facts(), rpc: pool.rpc, isHTTP1: true)
    since = pool.runtime.now
    confine(self)
    facts.heardAt.set(since)
    facts.openedAt.set(since)
    if let keepalive = pool.settings.keepalive {
      link.socket.limitUnacknowledged(keepalive.timeout)
      link.socket.keepAlive(idle: keepalive.interval, timeout: keepalive.timeout)
    }
  }

  /// Begins to receive the descriptor's events, and handles the bytes that are already in the link.
  public func begin() {
    link.hand(to: self)
    if let engine = link.engine {
      receiveRecords(engine)
    } else if !link.input.isEmpty {
      receive(link.input.view)
    }
    check()
  }

  public var view: ConnectionView {
    ConnectionView(
      .ready, facts, streams: stream == nil ? 0 : 1, allowed: 1, opened: requests, sentBytes: link.sentBytes,
      receivedBytes: link.receivedBytes)
  }

  // MARK: Streams

  /// Whether the connection can have a request. The loop reports the peer's end. If the loop has not polled for the last
  /// `lately` nanoseconds, and the last answer ended before that, the socket itself is asked.
  public func lookIfUsable() -> Bool {
    guard let pool, !reading.peerHasEnded else { return false }
    let asked = max(pool.runtime.polledAt, since)
    if pool.runtime.clock &- asked > HTTP1Connection.lately, !link.socket.isQuiet {
      receiveAll(HTTP1Connection.restBudget)
    }
    return life == .idle
  }

  /// Gives the idle connection a stream, whose request it then writes.
  public func assign(_ stream: HTTP1Stream) {
    guard let pool else { return }
    _ = life.handle(.assigned)
    requests += 1
    self.stream = stream
    stream.connection = self
    since = pool.runtime.now
    silentAt = since
    pool.lend(facts)
    pool.watchSilence(since)
    _ = borrow(stream.owner) { $0.streamJoins(stream, facts) }
    parser.begin()
    wantsWrite()
  }

  func wantsWrite() {
    if life != .closed, let pool { pool.work.scheduleWrite(self) }
  }

  /// Called when the owner has taken bytes. Reading goes on once half of the window is free.
  public func consumed(_ stream: HTTP1Stream) {
    if reading.isPaused, stream.body.count <= window / 2 { note(.room) }
  }

  private func note(_ event: HTTP1Reading.Event) {
    switch reading.handle(event) {
    case .nothing: break
    case .watch: watch()
    case .unwatch: link.unwatch()
    case .schedule: wantsWrite()
    }
  }

  /// Makes the loop report the events that are of use now.
  func watch() {
    if reading.isUnwatched { return }
    link.watch(input: !reading.isPaused && !link.isClogged, output: !link.isSent && !life.isDeaf)
  }

  private var window: Int { pool.map { $0.settings.limits.streamWindow } ?? 0 }

  /// Called when the stream's owner leaves the stream.
  public func giveUp() {
    stream = nil
    unsent.removeAll()
    if life == .receiving, parser.hasBegun {
      // If the rest of the answer has already arrived, reading it makes the connection usable again.
      note(.room)
      receiveAll(HTTP1Connection.restBudget)
      if life != .receiving { return }
    }
    // A connection on which nothing was written is kept.
    if life != .opening { isUnproven = false }
    follow(.unwanted, ByteBuffer().say("a call has ended before its answer"))
  }

  func follow(_ event: HTTP1Life.Event, _ words: @autoclosure () -> ByteBuffer = ByteBuffer()) {
    switch life.handle(event) {
    case .nothing: break
    case .dropCopies: unsent.removeAll()
    case .keep: keep()
    case .close: end(words())
    }
  }

  private func keep() {
    guard let pool else { return }
    since = pool.runtime.now
    pool.keep(self)
  }

  public func mark() { changed = stream }

  var hasUntold: Bool { changed != nil }

  private func tell() {
    guard let told = changed.take(), let owner = told.owner else { return }
    owner.streamChanged(told)
  }

  // MARK: Reading

  public func ready(_ events: UInt32) {
    if life == .closed { return }
    if events & (CS_EPOLLERR | CS_EPOLLHUP) != 0 {
      note(.hangsUp)
    } else if events & CS_EPOLLRDHUP != 0 {
      note(.peerEnds)
    }
    if events & ~CS_EPOLLOUT != 0, !reading.isPaused { receiveAll(HTTP1Connection.readBudget) }
    tell()
    // TLS may have answered messages of its own.
    if events & CS_EPOLLOUT != 0 || !link.isSent { wantsWrite() }
    check()
  }

  /// Reads and handles the waiting bytes. If it reads more than once, it tells the stream's owner of the bytes
  /// between two reads; after the last read the caller tells the owner.
  func receiveAll(_ most: Int) {
    var budget = most
    let wasDue = reading.isDue
    note(.reads)
    // With TLS, `engine` may already have the next bytes.
    if wasDue, let engine = link.engine { receiveRecords(engine) }
    while budget > 0, life != .closed, !reading.isPaused, let pool {
      let room = stream.map { window - $0.body.count } ?? window
      if room <= 0 { return note(.full) }
      var capacity = 0
      let moved: Socket.Moved
      var straight = UnsafeMutableRawBufferPointer(start: nil, count: 0)
      if let engine = link.engine {
        if link.isClogged { return }
        guard let space = engine.input.spare(atLeast: HTTP1Owner.scratchSize / 2) else {
          return close(ByteBuffer().say("no memory to receive"))
        }
        capacity = space.count
        moved = link.socket.receive(into: space)
      } else if let space = messageSpace {
        straight = space
        capacity = space.count + pool.scratch.count
        moved = link.socket.receive(into: space, then: pool.scratch)
      } else {
        let space = UnsafeMutableRawBufferPointer(rebasing: pool.scratch.prefix(room))
        capacity = space.count
        moved = link.socket.receive(into: space)
      }
      switch moved {
      case .wouldBlock: return reading.isUnwatched ? close(Link.ended(life.during)) : ()
      case .end: return connectionEnded(isWhole: link.engine == nil)
      case .failed(let code): return close(Link.lost(code, life.during))
      case .bytes(let n):
        link.receivedBytes &+= UInt64(n)
        facts.heardAt.set(pool.runtime.lastNow)
        budget -= n
        if let engine = link.engine {
          engine.input.commit(n)
          receiveRecords(engine)
        } else if straight.count > 0 {
          behind = max(n - straight.count, 0)
          receive(ByteView(rebasing: ByteView(straight).prefix(n)))
          behind = 0
          if n > straight.count, life != .closed {
            receive(ByteView(rebasing: ByteView(pool.scratch).prefix(n - straight.count)))
          }
        } else {
          receive(ByteView(rebasing: ByteView(pool.scratch).prefix(n)))
        }
        // A read of less than the space has usually emptied the socket; if not, epoll reports the rest. While reading
        // is paused, the owner is not told here: it might make room, and this loop would read on.
        if n < capacity || reading.isPaused { return }
        tell()
      }
    }
  }

  /// The memory of the message that is being received, into which the socket can write directly. It is never longer
  /// than the part of the body that is certainly still to come. nil: bytes go through the pool's buffer.
  private var messageSpace: UnsafeMutableRawBufferPointer? {
    guard parser.bodyAhead >= HTTP1Connection.leastSpace, let stream, stream.bodyIsEmpty, stream.end == nil,
      let space = stream.owner?.streamSpace(), space.count >= HTTP1Connection.leastSpace
    else { return nil }
    return UnsafeMutableRawBufferPointer(rebasing: space.prefix(parser.bodyAhead))
  }

  private func receiveRecords(_ engine: TLSEngine) {
    while life != .closed, let pool {
      let room = stream.map { window - $0.body.count } ?? window
      if room <= 0 { return note(.full) }
      let space = messageSpace ?? UnsafeMutableRawBufferPointer(rebasing: pool.scratch.prefix(room))
      switch engine.read(into: space) {
      case .bytes(let n): receive(ByteView(rebasing: ByteView(space)[..<n]))
      case .needsMore:
        let events = engine.takeEvents()
        if events == 0 { return }
        eventsWithoutUse += events
        if eventsWithoutUse > Limits.framesWithoutUse {
          return close(
            ByteBuffer().say("the connection ended: too many TLS messages without use for any call"))
        }
      case .closed: return connectionEnded(isWhole: true)
      case .failed:
        // Sends the TLS alert, which tells the peer the reason.
        link.flush()
        return close(engine.failure ?? ByteBuffer().say("TLS failed"))
      }
    }
  }

  private func receive(_ bytes: ByteView) {
    var at = 0
    eventsWithoutUse = 0
    switch life {
    case .sending, .receiving, .deaf: break
    case .idle, .opening, .unsent:
      return close(ByteBuffer().say("the server sent bytes without a request"))
    case .closed: return
    }
    if isUnproven {
      isUnproven = false
      pool?.answered()
    }
    while true {
      let (count, event) = parser.push(ByteView(rebasing: bytes[at...]))
      at += count
      switch event {
      case .needsMore: return
      case .body(let part): if !take(part) { return }
      case .head(let endsAnswer):
        takeHead(endsAnswer)
        if endsAnswer { return answered(.trailers, bytes.count - at) }
      case .trailers:
        takeTrailers()
        return answered(.trailers, bytes.count - at)
      case .end: return answered(.body, bytes.count - at)
      case .failed(let flaw): return broken(flaw)
      }
    }
  }

  private func takeHead(_ endsAnswer: Bool) {
    guard let stream, isWithinLimit() else { return }
    _ = borrow(stream.owner) { $0.streamReceives(head: parser.block, endsStream: endsAnswer) }
    mark()
  }

  private func takeTrailers() {
    guard let stream, stream.end == nil, isWithinLimit() else { return }
    _ = borrow(stream.owner) { $0.streamReceives(trailers: parser.block) }
  }

  /// Whether the received fields are within the size limit. If not, the stream ends.
  private func isWithinLimit() -> Bool {
    if parser.block.size <= maxHeaderList { return true }
    let words = ByteBuffer().say("the received headers are over the limit of ").say(maxHeaderList)
      .say(" bytes (max_header_list_bytes)")
    stream?.finish(.answerTooLarge(words))
    mark()
    return false
  }

  private var maxHeaderList: Int { pool.map { $0.settings.limits.maxHeaderList } ?? 0 }

  /// Passes a part of the body to the stream. False: the connection has closed.
  private func take(_ part: ByteView) -> Bool {
    guard let stream, stream.end == nil else { return true }
    stream.received(part.count)
    var taken = 0
    if stream.bodyIsEmpty {
      taken = min(max(borrow(stream.owner) { $0.streamReceives(part) } ?? 0, 0), part.count)
    }
    mark()
    if taken == part.count || stream.store(ByteView(rebasing: part[taken...])) { return true }
    stream.finish(.noMemory)
    close(ByteBuffer().say("no memory to receive"))
    return false
  }

  /// Called when the answer is complete. `surplus`: the number of bytes after its end. No request has asked for them,
  /// so they are not taken for the answer to the next one (RFC 9112 section 11.2): the connection closes. The answer
  /// itself is whole.
  private func answered(_ how: StreamEnd, _ surplus: Int) {
    let surplus = surplus + behind
    mark()
    let answered = stream.take()
    _ = borrow(answered) { $0.finish(how, on: self) }
    let keeps = surplus == 0 && parser.persists && !reading.peerHasEnded && pool?.keepsConnections == true
    follow(.answered(keeps: keeps), whyEnded(surplus))
  }

  private func whyEnded(_ surplus: Int) -> ByteBuffer {
    let words = ByteBuffer()
    if surplus > 0 {
      return words.say("the server broke the rules of HTTP/1.1: ").say(surplus)
        .say(" bytes behind the end of its answer")
    }
    return words.say(
      reading.peerHasEnded || !parser.persists
        ? "the server has ended the connection with its answer" : "the connection is no longer used")
  }

  private func broken(_ flaw: ResponseFlaw) {
    let words = parser.words(flaw)
    stream?.finish(
      flaw == .tooLong ? .answerTooLarge(words) : flaw == .noMemory ? .noMemory : .broken(words))
    close(words)
  }

  // MARK: Writing

  public func runInTurn() {
    if life == .closed { return }
    if reading.isDue {
      receiveAll(HTTP1Connection.readBudget)
      tell()
    }
    write()
    tell()
    check()
  }

  /// Ends a stream of which nothing is in the output, and keeps the connection.
  public func refuse(_ end: StreamEnd) {
    mark()
    stream?.finish(end, on: self)
    stream = nil
    follow(.unwanted)
  }

  // MARK: The end

  /// Called when the peer has ended the connection. `isWhole`: the end was regular, which in TLS needs a close_notify.
  private func connectionEnded(isWhole: Bool) {
    note(.peerEnds)
    if life.expectsAnswer, isWhole, parser.connectionEnded() { return answered(.body, 0) }
    let text = Link.ended(life.during)
    if life.expectsAnswer || life.isUnsent {
      if let position = parser.position() {
        text.say(", ").say(position.view)
      } else if !parser.hasBegun {
        text.say(": it has sent no answer")
      }
    }
    close(text)
  }

  /// Closes the connection at once, and ends the present request.
  public func close(_ words: ByteBuffer) {
    guard life != .closed else { return }
    let was = life
    _ = life.handle(.over)
    if was == .idle, let pool, Time.after(pool.settings.backoff.initial, since) <= pool.runtime.now {
      isUnproven = false
    }
    if let stream = stream.take() {
      if changed !== stream { tell() }
      changed = stream
      stream.finish(how(was, words, stream), on: self)
    }
    end(words)
    tell()
  }

  /// The end of the stream on a connection that has closed. `was`: the connection's state before.
  private func how(_ was: HTTP1Life, _ words: ByteBuffer, _ stream: HTTP1Stream) -> StreamEnd {
    if was == .opening { return .neverSent(words) }
    if was.isUnsent {
      stream.restore(unsent)
      return .neverSent(words)
    }
    return parser.hasBegun ? .lost(words) : .unanswered(words)
  }

  /// Called when the connection is closed. Frees its resources, and tells the pool.
  private func end(_ words: ByteBuffer) {
    unsent.removeAll()
    link.close()
    let told = pool.take()
    told?.ended(self, words)
  }

  public func closeGracefully(_ words: ByteBuffer) {
    guard life != .closed, let pool else { return }
    isUnproven = false
    // If other code in the program has closed the loop's descriptors, the socket's number may be another file's now.
    if !pool.runtime.hasLostDescriptors, let engine = link.engine {
      engine.close()
      link.flush()
    }
    close(words)
  }

  public func closeInChild() { link.socket.close() }
}
