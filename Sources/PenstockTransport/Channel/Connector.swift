import CPenstockSystem
import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLoop
import PenstockNames
import PenstockLink
import PenstockHTTP

/// The object that a connector makes a connection for. It is told the result once, on the driving thread.
protocol ConnectorOwner: AnyObject {
  /// Called when all steps are done. The owner takes the link, and makes a connection from it. False: no
  /// memory.
  func connectorDone(_ connector: Connector, _ link: Link, _ peer: ByteBuffer) -> Bool
  func connectorFailed(_ connector: Connector, _ words: ByteBuffer)
  /// Whether a connection of this channel to the address has worked. If so, TLS or its lack is no likely reason for
  /// a failure.
  var hasWorked: Bool { get }
  /// Whether there is a connection to the address already.
  var hasConnection: Bool { get }
  /// Called when a connector that has waited for a place begins.
  func connectorBegins()
  /// Called when a connector has waited in vain, because the channel had as many connections as it may have, and now one
  /// more may be made.
  func roomIsLeft()
}

extension HTTP1Pool {
  /// A pool begins with a connection that has gone through all steps.
  var hasWorked: Bool { true }
  func roomIsLeft() { resetBackoff() }
}

extension Subchannel {
  /// Does nothing: there is one connector at a time.
  func connectorBegins() {}
  func roomIsLeft() { resetBackoff() }
}

/// Makes one connection. It connects a socket, or asks the user's program for one, and runs the steps on it one after
/// the other. Then a connection of the negotiated HTTP version takes over the link.
///
/// ```
/// place --> question --> socket --> step (a proxy) --> step (TLS) --> TransportConnection
///   \-----------\-----------\-------- error, end of stream, timeout (the owner's): failed
/// ```
final class Connector: ReadyHandler, TurnTask {
  private enum Phase {
    /// The connector has not begun.
    case new
    /// It waits, because the channel has as many connections as it may have.
    case place
    /// The program's connector is asked for the socket.
    case question(ConnectQuestion)
    /// The socket is not connected yet. With the first step; nil: HTTP begins on the socket itself.
    case socket(Link, ConnectStep?)
    case step(ConnectStep, Link)
    case over
  }

  var isScheduled = false
  private var phase = Phase.new
  private let endpoint: Endpoint
  let channel: ChannelCore
  /// The owner, to which the result is reported; nil: the result was reported, or is not wanted any more.
  private var owner: (any ConnectorOwner)?
  /// The time when the owner gives the connector up.
  private(set) var until: UInt64
  /// For `ConnectionLimit`: whether the channel will keep only one of the connections that are being made, and the
  /// connector's place.
  let races: Bool
  var place: ConnectionPlace?

  private static let readBudget = 256 << 10
  private static let leastRoom = 32 << 10

  enum Started {
    case started(Connector)
    case failed(ByteBuffer)
  }

  /// Begins to connect. The result is not reported to the owner from within this function. `races`: of the connections
  /// that the channel is making, only the first one that succeeds is kept.
  static func start(
    _ endpoint: Endpoint, _ channel: ChannelCore, _ owner: any ConnectorOwner, races: Bool = false
  ) -> Started {
    let connector = Connector(endpoint, channel, owner, races: races)
    guard channel.limit.enter(connector) else {
      connector.phase = .place
      channel.closeLongestIdle(sparesLast: connector.isFurther)
      return .started(connector)
    }
    guard let words = connector.begin() else { return .started(connector) }
    connector.close()
    return .failed(words)
  }

  private init(_ endpoint: Endpoint, _ channel: ChannelCore, _ owner: any ConnectorOwner, races: Bool) {
    self.endpoint = endpoint
    self.channel = channel
    self.owner = owner
    self.races = races
    until = Time.after(channel.destination.connectTimeout, channel.runtime.now)
  }

  func isFor(_ owner: AnyObject) -> Bool { self.owner === owner }
  /// Whether the address has a connection already.
  var isFurther: Bool { owner?.hasConnection == true }

  /// Whether the connector waits, because the channel has as many connections as it may have.
  var waitsForPlace: Bool {
    if case .place = phase { place == nil } else { false }
  }

  /// Called when a connector that has waited for a place has one. It begins soon, and has the whole connect timeout.
  func goOn() {
    until = Time.after(channel.destination.connectTimeout, channel.runtime.now)
    channel.work.schedule(self)
  }

  private func begin() -> ByteBuffer? {
    channel.renewCertificates()
    guard let functions = channel.connector else { return open() }
    ask(functions)
    return nil
  }

  private func ask(_ functions: ConnectorFunctions) {
    let question = ConnectQuestion(
      functions, self, endpoint.nearest, channel.destination.name.view, channel.runtime)
    phase = .question(question)
    question.ask()
  }

  /// Called with the answer of the program's connector.
  func answered(_ answer: ConnectQuestion.Answer) {
    guard case .question = phase else { return }
    let words: ByteBuffer?
    switch answer {
    case .socket(let socket): words = begin(socket, connecting: false)
    case .declined: words = open()
    case .failed(let text): words = text
    }
    if let words { fail(words) }
  }

  /// Opens a socket and begins to connect it. Returns the reason if this fails at once, otherwise nil.
  private func open() -> ByteBuffer? {
    switch channel.runtime.platform.connect(to: endpoint.nearest, channel.destination.sockets) {
    case .failed(let code): return Connector.toProxy(endpoint).say(errno: code)
    case .refused(let words): return Connector.toProxy(endpoint).say(words.view)
    case .socket(let socket, let connecting): return begin(socket, connecting: connecting)
    }
  }

  private func begin(_ socket: Socket, connecting: Bool) -> ByteBuffer? {
    let first: ConnectStep?
    switch channel.destination.steps(to: endpoint, channel.verifier) {
    case .made(let made): first = made
    case .failed(let words): return words
    }
    let events = connecting ? CS_EPOLLOUT : CS_EPOLLIN
    guard channel.runtime.watch(socket.descriptor, events, self) else {
      socket.close()
      return ByteBuffer().say("the system refused to watch the socket")
    }
    phase = .socket(Link(socket, copies: channel.destination.tls != nil, channel.runtime), first)
    if !connecting { channel.work.schedule(self) }
    return nil
  }

  // MARK: Events

  func ready(_ events: UInt32) {
    switch phase {
    case .new, .place, .question, .over: return
    case .socket(let link, let first):
      let code = link.socket.connectError
      if code != 0 { return fail(Connector.toProxy(endpoint).say(errno: code)) }
      if events & (CS_EPOLLERR | CS_EPOLLHUP) != 0 {
        return fail(Connector.toProxy(endpoint).say("the connection broke off"))
      }
      channel.runtime.rewatch(link.socket.descriptor, CS_EPOLLIN)
      enter(first, link)
    case .step:
      if events & ~CS_EPOLLOUT != 0 { receive() }
      if events & CS_EPOLLOUT != 0 { channel.work.scheduleWrite(self) }
    }
  }

  /// Sends the output of a step. If the connector has got its place, or if the socket was connected at once, this function
  /// begins what follows.
  func runInTurn() {
    switch phase {
    case .new, .question, .over: return
    case .place:
      guard place != nil else { return }
      owner?.connectorBegins()
      if let words = begin() { fail(words) }
    case .socket(let link, let first): enter(first, link)
    case .step(_, let link):
      if !link.isSent, case .failed(let code) = link.send(.max) {
        // The peer may have sent bytes before it closed the connection, and these may explain the failure
        // better.
        receive()
        return lose(code)
      }
      link.watchOutput(!link.isSent)
    }
  }

  private func receive() {
    var budget = Connector.readBudget
    while budget > 0, case .step(let step, let link) = phase, !link.isClogged {
      guard let space = link.input.spare(atLeast: Connector.leastRoom) else {
        return fail(ByteBuffer().say("no memory to receive"))
      }
      switch link.socket.receive(into: space) {
      case .wouldBlock: return
      case .end:
        return fail(guess(step, Link.ended(step.during)))
      case .failed(let code): return lose(code)
      case .bytes(let n):
        link.input.commit(n)
        follow(step.take(link), step, link)
        budget -= n
        // A read that does not fill the space has emptied the socket. If the budget is used up before that,
        // epoll reports the rest.
        if n < space.count { return }
      }
    }
  }

  private func enter(_ step: ConnectStep?, _ link: Link) {
    guard let step else { return finish(link) }
    phase = .step(step, link)
    follow(step.begin(link), step, link)
  }

  private func follow(_ outcome: ConnectStep.Outcome, _ step: ConnectStep, _ link: Link) {
    switch outcome {
    case .more: channel.work.scheduleWrite(self)
    case .done: enter(step.next, link)
    case .failed(let words):
      // The last output of the step may tell the peer the reason, such as a TLS alert.
      link.flush()
      fail(words)
    }
  }

  private func finish(_ link: Link) {
    guard let told = owner else { return }
    phase = .over
    owner = nil
    link.place = place.take()
    if let engine = link.engine { channel.handshakes.count(isResumed: engine.isResumed) }
    if told.connectorDone(self, link, ByteBuffer().say(endpoint.address.text())) { return }
    link.close()
    told.connectorFailed(self, ByteBuffer().say("no memory for a connection"))
  }

  // MARK: The end

  /// Called by the owner at the end of the connect timeout.
  func timedOut() {
    switch phase {
    case .step(let step, _): fail(ByteBuffer().say("connect timeout").say(step.during))
    case .question(let question):
      // An answer may have come in the same turn.
      let late: StaticString = question.isAnswered ? "answered too late" : "not answered"
      fail(ByteBuffer().say("connect timeout: the connector has ").say(late))
    case .place:
      if let owner { channel.limit.refuse(owner) }
      fail(channel.limit.words)
    case .new, .socket, .over: fail(Connector.toProxy(endpoint).say("connect timeout"))
    }
  }

  private func lose(_ code: Int32) {
    guard case .step(let step, _) = phase else { return }
    fail(guess(step, Link.lost(code, step.during)))
  }

  /// Adds to `text` a likely reason why the peer has closed the connection during `step`.
  private func guess(_ step: ConnectStep, _ text: ByteBuffer) -> ByteBuffer {
    if owner?.hasWorked == false { step.guess(text) }
    return text
  }

  /// The beginning of an error text about the socket, which names the proxy if the socket connects to one.
  private static func toProxy(_ endpoint: Endpoint) -> ByteBuffer {
    if endpoint.way == .straight { return ByteBuffer() }
    return ByteBuffer().say("the proxy ").say(endpoint.nearest.text()).say(": ")
  }

  private func fail(_ words: ByteBuffer) {
    let told = owner
    close()
    told?.connectorFailed(self, words)
  }

  /// Stops connecting, and reports nothing to the owner.
  func close() {
    let before = phase
    phase = .over
    owner = nil
    switch before {
    case .new, .place, .over: break
    case .question(let question): question.abandon()
    case .socket(let link, _), .step(_, let link): link.close()
    }
    channel.limit.release(self)
  }

  func closeInChild() {
    switch phase {
    case .new, .place, .question, .over: break
    case .socket(let link, _), .step(_, let link): link.socket.close()
    }
  }
}
