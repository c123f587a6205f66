import CPenstockSystem
import PenstockChannel
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockLink
import PenstockHTTP

/// Plays one section of a script on one connection.
///
/// The player counts the client's events by kind as they arrive. A wait of the script decreases the count of
/// one kind. So events of different kinds may arrive in any order, unless the script waits in between. After
/// the last step the player sends nothing more, and reads until the client closes.
final class Player: Source {
  private let loop: Loop
  private let link: Link
  private let steps: [Script.Step]
  private let number: Int
  private let prints: Bool
  private let maker = FrameMaker()
  private let input: PlayerInput

  private var at = 0
  private var loops: [(start: Int, left: Int)] = []
  private var taken: [Int] = Array(repeating: 0, count: Script.Event.count)
  private var isDelayed = false
  private var isDeaf = false
  private var isWriting = false
  private var closesWhenFlushed = false
  private var halfClosesWhenFlushed = false
  private var isLingering = false
  private var isGone = false

  /// The time in nanoseconds for which a closing connection waits until the client closes, too.
  private static let lingering: UInt64 = 1_000_000_000

  init(_ loop: Loop, _ link: Link, _ section: Script.Section, _ options: Options, number: Int) {
    self.loop = loop
    self.link = link
    steps = options.times > 1 ? [.repeated(options.times)] + section.steps + [.again] : section.steps
    self.number = number
    prints = options.printsRequests
    input = PlayerInput(number: number, prints: options.printsRequests)
    super.init()
    fd = link.fd
  }

  func start() {
    guard loop.watch(self, CS_EPOLLIN) else { return }
    tell("connected")
    play()
  }

  private func tell(_ what: StaticString) {
    if prints {
      Console.out.line.put("{\"connection\":").put(number).put(",\"event\":\"").put(what).put("\"}\n")
    }
  }

  // MARK: Steps

  private func play() {
    while !isGone && !isDelayed && at < steps.count {
      if link.isFull {
        flush()
        if isWriting { return }
      }
      switch steps[at] {
      case .expect(let event, let times):
        guard input.has(event, taken[event.rawValue] + times) else { return flush() }
        taken[event.rawValue] += times
        if event == .headers { input.follow(taken[event.rawValue]) }
      case .send(let frame): _ = maker.make(frame, current: input.current, into: link.output.bytes)
      case .sayTLS(let message, let times): link.say(message, times: times)
      case .delay(let nanoseconds):
        isDelayed = true
        loop.arm(self, at: cs_monotonic() &+ nanoseconds)
      case .repeated(let times): loops.append((at, times - 1))
      case .again:
        if let last = loops.last {
          if last.left > 0 {
            loops[loops.count - 1].left -= 1
            at = last.start
          } else {
            loops.removeLast()
          }
        }
      case .close: closesWhenFlushed = true
      case .halfClose: halfClosesWhenFlushed = true
      case .reset:
        flush()
        link.makeCloseAbrupt()
        leave("reset")
      case .silence: at = steps.count - 1
      case .deaf:
        isDeaf = true
        watch()
      }
      at += 1
      if closesWhenFlushed { break }
    }
    flush()
  }

  override func timeIsUp(_ now: UInt64) {
    if isLingering { return leave("closed") }
    isDelayed = false
    play()
  }

  // MARK: Bytes

  override func ready(_ bits: UInt32) {
    if bits & ~CS_EPOLLOUT != 0 && !isDeaf {
      reading: while !isGone {
        switch link.receive(loop.receiveBuffer) {
        case .bytes(let bytes): if !isLingering { input.take(bytes) }
        case .wouldBlock: break reading
        case .ended, .failed:
          if isLingering { return leave("closed") }
          input.note(.close)
          play()
          return leave("closed by the client")
        }
      }
    } else if isDeaf && bits & (CS_EPOLLHUP | CS_EPOLLERR) != 0 {
      return leave("closed by the client")
    }
    if isDelayed || closesWhenFlushed { flush() } else { play() }
  }

  private func flush() {
    if isGone || isLingering { return }
    switch link.flush() {
    case .failed: return leave("closed by the client")
    case .handshaking: return
    case .blocked:
      isWriting = true
      return watch()
    case .done: break
    }
    if isWriting {
      isWriting = false
      watch()
    }
    if closesWhenFlushed { return linger() }
    if halfClosesWhenFlushed {
      halfClosesWhenFlushed = false
      link.halfClose()
    }
  }

  private func watch() { loop.rewatch(self, (isDeaf ? 0 : CS_EPOLLIN) | (isWriting ? CS_EPOLLOUT : 0)) }

  /// Half-closes the connection, so that the client sees its end at once. The descriptor stays open until the
  /// client has closed, too. If it were closed while received bytes are unread or still arrive, the kernel
  /// would reset the connection, and the client could lose bytes that were sent before.
  private func linger() {
    isDeaf = false
    isLingering = true
    link.halfClose()
    watch()
    loop.arm(self, at: cs_monotonic() &+ Player.lingering)
  }

  private func leave(_ why: StaticString) {
    if isGone { return }
    isGone = true
    tell(why)
    loop.forget(self)
    link.close()
  }

  override func stop() { leave("stopped") }
}
