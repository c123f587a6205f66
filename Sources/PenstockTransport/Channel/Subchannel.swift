import PenstockCall
import PenstockWire

/// What a subchannel needs to know to connect.
final class Destination {
  let target: Target
  /// As the user wrote it, for error texts.
  let name: ByteBuffer
  let tls: TLSContext?
  let limits: HTTP2Limits
  let connectTimeout: UInt64

  init(
    _ target: Target, _ name: ByteBuffer, _ tls: TLSContext?, _ limits: HTTP2Limits, _ connectTimeout: UInt64
  ) {
    self.target = target
    self.name = name
    self.tls = tls
    self.limits = limits
    self.connectTimeout = connectTimeout
  }
}

/// Owns one connection, makes it when an attempt needs it, and makes a new one for the next attempt after it died.
///
/// ```
/// idle --attach--> resolving --> connecting (each address in turn) --> ready --GOAWAY, loss--> idle
///   ^------------------ nothing worked: all who wait fail -----/
/// ```
/// A connection that drains (GOAWAY) goes on beside it until its streams have ended.
final class Subchannel: ConnectionOwner, ResolverCompletion, TurnTask {
  private enum State {
    case idle
    case resolving(Lookup)
    case connecting(HTTP2Connection)
    case ready(HTTP2Connection)
    case closed
  }

  var isScheduled = false
  private let destination: Destination
  private let runtime: Runtime
  private let work: TurnWork
  private var state = State.idle
  private var plan = ConnectPlan(now: 0, timeout: 0)
  private var addresses: [SocketAddress] = []
  private var waiting: [Attempt] = []
  private var draining: [HTTP2Connection] = []
  private var timer: ConnectTimer?

  init(_ destination: Destination, _ runtime: Runtime, _ work: TurnWork) {
    self.destination = destination
    self.runtime = runtime
    self.work = work
  }

  /// `attempt` gets a connection or a failure, never from within this.
  func attach(_ attempt: Attempt) {
    if case .ready(let connection) = state {
      if connection.session.canOpen { return attempt.open(on: connection) }
      retire(connection)
    }
    waiting.append(attempt)
    if case .idle = state { work.schedule(self) }
    if case .closed = state { work.schedule(self) }
  }

  /// Begins to connect, if somebody still waits.
  @inline(never) @_optimize(size)
  func runInTurn() {
    waiting.removeAll { !$0.isWaiting }
    guard !waiting.isEmpty else { return }
    switch state {
    case .idle: begin()
    case .closed: fail(ByteBuffer().say("the channel is closed"))
    case .resolving, .connecting, .ready: break
    }
  }

  // MARK: Connecting

  @inline(never) @_optimize(size)
  private func begin() {
    runtime.refreshNow()
    plan = ConnectPlan(now: runtime.now, timeout: destination.connectTimeout)
    switch destination.target.place {
    case .addresses(let list):
      addresses = list
      follow(plan.resolved(list.count, now: runtime.now))
    case .name(let host, let port):
      state = .resolving(Resolver.resolve(host: host.view, port: port, on: runtime, completion: self))
      arm(plan.deadline)
    }
  }

  @inline(never) @_optimize(size)
  func resolved(_ outcome: ResolverOutcome) {
    guard case .resolving = state else { return }
    switch outcome {
    case .addresses(let list):
      addresses = list
      follow(plan.resolved(list.count, now: runtime.now))
    case .failed(let words):
      fail(ByteBuffer().say("the name of ").say(destination.name.view).say(" does not resolve: ").say(words))
    }
  }

  @inline(never) @_optimize(size)
  private func follow(_ first: ConnectPlan.Step) {
    var step = first
    while true {
      guard case .connect(let index, let until) = step, index < addresses.count else {
        return fail(plan.words(destination.name))
      }
      let address = addresses[index]
      switch HTTP2Connection.start(
        address, tls: destination.tls, host: destination.target.host, limits: destination.limits,
        runtime: runtime,
        work: work, owner: self)
      {
      case .started(let connection):
        state = .connecting(connection)
        return arm(until)
      case .failed(let words):
        step = plan.failed(ByteBuffer().say(address.text()), words, now: runtime.now)
      }
    }
  }

  private func arm(_ time: UInt64) {
    let timer = self.timer ?? ConnectTimer(self)
    self.timer = timer
    runtime.arm(timer, at: time)
  }

  private func disarm() {
    if let timer { runtime.disarm(timer) }
  }

  @inline(never) @_optimize(size)
  fileprivate func timedOut() {
    switch state {
    case .resolving(let lookup):
      lookup.cancel()
      fail(ByteBuffer().say("the name of ").say(destination.name.view).say(" did not resolve in time"))
    case .connecting(let connection):
      let words = ByteBuffer().say("connect timeout")
      switch connection.phase {
      case .handshaking: words.say(" during the TLS handshake")
      case .preface: words.say(": the peer does not answer with HTTP/2")
      case .connecting, .open, .closed: break
      }
      connection.close(words)
    case .idle, .ready, .closed: break
    }
  }

  @inline(never) @_optimize(size)
  private func fail(_ words: ByteBuffer) {
    if case .closed = state {} else { state = .idle }
    disarm()
    let all = waiting
    waiting = []
    for attempt in all { attempt.connectFailed(words) }
  }

  // MARK: What the connection tells

  func connectionReady(_ connection: HTTP2Connection) {
    guard case .connecting(let current) = state, current === connection else { return }
    disarm()
    state = .ready(connection)
    let all = waiting
    waiting = []
    for attempt in all { attempt.open(on: connection) }
  }

  func connectionDraining(_ connection: HTTP2Connection) {
    if case .ready(let current) = state, current === connection { retire(connection) }
  }

  private func retire(_ connection: HTTP2Connection) {
    state = .idle
    draining.append(connection)
    if !waiting.isEmpty { work.schedule(self) }
  }

  @inline(never) @_optimize(size)
  func connectionEnded(_ connection: HTTP2Connection, _ words: ByteBuffer) {
    switch state {
    case .connecting(let current) where current === connection:
      follow(plan.failed(connection.peer, words, now: runtime.now))
    case .ready(let current) where current === connection: state = .idle
    case .idle, .resolving, .connecting, .ready, .closed: draining.removeAll { $0 === connection }
    }
  }

  // MARK: The end

  /// Ends the connections. Whoever waited has been told already.
  @inline(never) @_optimize(size)
  func close() {
    let before = state
    state = .closed
    disarm()
    let retired = draining
    draining = []
    waiting = []
    switch before {
    case .resolving(let lookup): lookup.cancel()
    case .connecting(let connection), .ready(let connection): connection.closeGracefully()
    case .idle, .closed: break
    }
    for connection in retired { connection.closeGracefully() }
    timer = nil
  }

  func closeInChild() {
    switch state {
    case .connecting(let connection), .ready(let connection): connection.closeInChild()
    case .idle, .resolving, .closed: break
    }
    for connection in draining { connection.closeInChild() }
  }
}

/// Armed only while its subchannel connects, and `close` disarms it: the reference needs no count.
private final class ConnectTimer: Timer {
  private unowned(unsafe) let subchannel: Subchannel

  init(_ subchannel: Subchannel) { self.subchannel = subchannel }

  override func fire() { subchannel.timedOut() }
}
