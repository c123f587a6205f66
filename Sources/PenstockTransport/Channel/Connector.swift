import CSystem
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
}

extension HTTP1Pool {
  /// A pool begins with a connection that has gone through all steps.
  var hasWorked: Bool { true }
}

/// Makes one connection. It connects a socket, and runs the steps on it one after the other. Then a
/// connection of the negotiated HTTP version takes over the link.
///
/// ```
/// socket --> step (a proxy) --> step (TLS) --> TransportConnection
///    \-------- error, end of stream, timeout (the owner's): failed
/// ```
final class Connector: ReadyHandler, TurnTask {
  private enum Phase {
    /// The socket is not connected yet.
    case socket
    case step(ConnectStep)
    case over
  }

  var isScheduled = false
  private var phase = Phase.socket
  private let link: Link
  private let first: ConnectStep?
  private let endpoint: Endpoint
  private let channel: ChannelCore
  /// The owner, to which the result is reported; nil: the result was reported, or is not wanted any more.
  private var owner: (any ConnectorOwner)?
  /// For an owner with several connectors. `next`: the next connector in the owner's list. `until`: the time
  /// when the owner gives this connector up.
  var next: Connector?
  var until: UInt64 = .max

  private static let readBudget = 256 << 10
  private static let leastRoom = 32 << 10

  enum Started {
    case started(Connector)
    case failed(ByteBuffer)
  }

  /// Begins to connect. The result is not reported to the owner from within this function.
  static func start(_ endpoint: Endpoint, _ channel: ChannelCore, _ owner: any ConnectorOwner) -> Started {
    channel.renewCertificates()
    switch channel.runtime.platform.connect(to: endpoint.nearest) {
    case .failed(let code): return .failed(toProxy(endpoint).say(errno: code))
    case .socket(let socket, let connecting):
      let first: ConnectStep?
      switch channel.destination.steps(to: endpoint) {
      case .made(let made): first = made
      case .failed(let words): return .failed(words)
      }
      let link = Link(socket, copies: channel.destination.tls != nil, channel.runtime)
      let connector = Connector(link, first, endpoint, channel, owner)
      let events = connecting ? CS_EPOLLOUT : CS_EPOLLIN
      guard channel.runtime.watch(socket.descriptor, events, connector) else {
        socket.close()
        return .failed(ByteBuffer().say("the system refused to watch the socket"))
      }
      if !connecting { channel.work.schedule(connector) }
      return .started(connector)
    }
  }

  private init(
    _ link: Link, _ first: ConnectStep?, _ endpoint: Endpoint, _ channel: ChannelCore,
    _ owner: any ConnectorOwner
  ) {
    self.link = link
    self.first = first
    self.endpoint = endpoint
    self.channel = channel
    self.owner = owner
  }

  // MARK: Events

  func ready(_ events: UInt32) {
    switch phase {
    case .over: return
    case .socket:
      let code = link.socket.connectError
      if code != 0 { return fail(Connector.toProxy(endpoint).say(errno: code)) }
      if events & (CS_EPOLLERR | CS_EPOLLHUP) != 0 {
        return fail(Connector.toProxy(endpoint).say("the connection broke off"))
      }
      channel.runtime.rewatch(link.socket.descriptor, CS_EPOLLIN)
      enter(first)
    case .step:
      if events & ~CS_EPOLLOUT != 0 { receive() }
      if events & CS_EPOLLOUT != 0 { channel.work.scheduleWrite(self) }
    }
  }

  /// Sends the output of a step. If the socket was connected at once, this function begins the first step.
  func runInTurn() {
    switch phase {
    case .over: return
    case .socket: enter(first)
    case .step:
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
    while budget > 0, case .step(let step) = phase, !link.isClogged {
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
        follow(step.take(link), step)
        budget -= n
        // A read that does not fill the space has emptied the socket. If the budget is used up before that,
        // epoll reports the rest.
        if n < space.count { return }
      }
    }
  }

  private func enter(_ step: ConnectStep?) {
    guard let step else { return finish() }
    phase = .step(step)
    follow(step.begin(link), step)
  }

  private func follow(_ outcome: ConnectStep.Outcome, _ step: ConnectStep) {
    switch outcome {
    case .more: channel.work.scheduleWrite(self)
    case .done: enter(step.next)
    case .failed(let words):
      // The last output of the step may tell the peer the reason, such as a TLS alert.
      link.flush()
      fail(words)
    }
  }

  private func finish() {
    guard let told = owner else { return }
    phase = .over
    owner = nil
    if let engine = link.engine { channel.handshakes.count(isResumed: engine.isResumed) }
    if told.connectorDone(self, link, ByteBuffer().say(endpoint.address.text())) { return }
    link.close()
    told.connectorFailed(self, ByteBuffer().say("no memory for a connection"))
  }

  // MARK: The end

  /// Called by the owner at the end of the connect timeout.
  func timedOut() {
    let words: ByteBuffer
    if case .step(let step) = phase {
      words = ByteBuffer().say("connect timeout").say(step.during)
    } else {
      words = Connector.toProxy(endpoint).say("connect timeout")
    }
    fail(words)
  }

  private func lose(_ code: Int32) {
    guard case .step(let step) = phase else { return }
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
    if case .over = phase { return }
    phase = .over
    owner = nil
    link.close()
  }

  func closeInChild() { link.socket.close() }
}
