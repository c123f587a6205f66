import CPenstockSystem
import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLoop
import PenstockNames
import PenstockLink

/// The functions of the user's program that open the sockets of a channel's connections.
public final class ConnectorFunctions {
  public typealias Function = @convention(c) (OpaquePointer?, UnsafeMutableRawPointer?) -> Void

  private let connect: Function
  private let cancel: Function?
  private let userData: UserData

  public init(connect: @escaping Function, cancel: Function?, _ userData: UserData) {
    self.connect = connect
    self.cancel = cancel
    self.userData = userData
  }

  fileprivate func connect(_ question: ConnectQuestion) { run(connect, question) }

  fileprivate func cancel(_ question: ConnectQuestion) {
    if let cancel { run(cancel, question) }
  }

  private func run(_ function: Function, _ question: ConnectQuestion) {
    function(OpaquePointer(Unmanaged.passUnretained(question).toOpaque()), userData.pointer)
  }
}

/// The object of a penstock_connecting handle: the question to the user's program for the socket of one connection.
/// The program answers on any thread; as an inbox item the question then brings the answer to the connector.
///
/// ```
/// open --> answered: the connector gets the answer
///    \---------\--> over: the connector waits no more, and a socket of the answer is closed
/// ```
/// `@unchecked Sendable`: the lock guards all that changes, except what only the driving thread uses.
public final class ConnectQuestion: InboxItem, @unchecked Sendable {
  enum Answer {
    case socket(Socket)
    case declined
    case failed(ByteBuffer)
  }

  private enum Phase { case open, answered, over }

  public let generation = Process.generation
  /// The bytes of the address (a struct sockaddr), and the texts of the address and of the channel's target, each with
  /// a NUL.
  public let addressBytes: ByteBuffer
  public let addressText: ByteBuffer
  public let target: ByteBuffer
  private let runtime: Runtime
  private let lock = Lock()
  private var phase = Phase.open
  private var answer: Answer?
  /// How many references the program has. The function that is asked counts as one while it runs.
  private var holders = 1
  /// The reason why the last descriptor of the program was no answer.
  private var refusal: ByteBuffer?
  /// The connector that asks, and the functions that are asked; nil: the question is over. Driving thread only.
  private var connector: Connector?
  private var functions: ConnectorFunctions?

  init(
    _ functions: ConnectorFunctions, _ connector: Connector, _ address: SocketAddress, _ target: ByteView,
    _ runtime: Runtime
  ) {
    self.functions = functions
    self.connector = connector
    self.runtime = runtime
    addressBytes = address.withRaw { ByteBuffer().say(ByteView(start: $0, count: Int($1))) }
    addressText = ByteBuffer().say(address.text())
    _ = addressText.append(byte: 0)
    self.target = ByteBuffer().say(target)
    _ = self.target.append(byte: 0)
    super.init()
  }

  // MARK: The driving thread

  /// Asks the program. The answer is not used from within this function.
  func ask() {
    functions?.connect(self)
    letGo()
    runtime.mark.isStale = true
  }

  public override func run() {
    let answer = lock.withLock { self.answer.take() }
    let asking = connector.take()
    functions = nil
    if let answer { asking?.answered(answer) }
  }

  var isAnswered: Bool { lock.withLock { phase == .answered } }

  public override func dropped(_ why: Closing) { end() }

  /// Called when the connector waits no more.
  func abandon() {
    connector = nil
    let asked = functions.take()
    guard end(), let asked else { return }
    asked.cancel(self)
    runtime.mark.isStale = true
  }

  /// Ends the question, and closes the socket of an answer that has come. Returns whether none has come.
  @discardableResult
  private func end() -> Bool {
    let (wasOpen, unused) = lock.withLock { () -> (Bool, Answer?) in
      let wasOpen = phase == .open
      phase = .over
      return (wasOpen, answer.take())
    }
    withExtendedLifetime(unused) {}
    return wasOpen
  }

  // MARK: The program, on any thread

  // In a forked child that has not taken over the parent's handles, another thread may have held the lock for ever.

  public func hold() {
    if !Process.isForked(generation) { lock.withLock { holders += 1 } }
  }

  /// Called when the program gives a reference back. If it was the last one, and the question is still open, nobody can
  /// answer any more.
  public func letGo() {
    if Process.isForked(generation) { return }
    let text = lock.withLock { () -> ByteBuffer? in
      holders -= 1
      guard holders == 0, phase == .open else { return nil }
      let text = ByteBuffer().say("the connector has given no socket")
      if let refusal { text.say(": ").say(refusal.view) }
      return text
    }
    if let text { _ = take { .failed(text) } }
  }

  public enum Taken {
    case outcome(Outcome)
    /// The descriptor is no connected socket, for the reason in words.
    case refused(ByteBuffer)
  }

  /// Takes a connected socket. The descriptor is the caller's unless the outcome is `ok`.
  public func take(descriptor: Int32) -> Taken {
    if Process.isForked(generation) { return .outcome(.forked) }
    if let words = Socket.fault(of: descriptor) {
      lock.withLock { refusal = words }
      return .refused(words)
    }
    return .outcome(take { .socket(Socket(connected: descriptor)) })
  }

  public func decline() -> Outcome { take { .declined } }

  public func fail(_ words: ByteView) -> Outcome {
    let text = ByteBuffer().say("the connector has failed")
    if !words.isEmpty { text.say(": ").say(words) }
    return take { .failed(text) }
  }

  private func take(_ make: () -> Answer) -> Outcome {
    if Process.isForked(generation) { return .forked }
    let outcome = lock.withLock { () -> Outcome in
      switch phase {
      case .open:
        phase = .answered
        answer = make()
        return .ok
      case .answered: return .already
      case .over: return .gone
      }
    }
    if outcome == .ok { runtime.post(self) }
    return outcome
  }
}
