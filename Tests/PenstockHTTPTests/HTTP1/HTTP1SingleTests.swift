import PenstockCall
import PenstockLink
import PenstockTestSupport
import PenstockWire
import Testing

@testable import PenstockHTTP
@testable import PenstockLoop

/// A single connection of HTTP/1.1: its slot, the order of its events, and the words with which it ends.
@Suite struct HTTP1SingleTests {
  final class Owner: ConnectionOwner {
    var events: [String] = []
    func connectionReady(_ connection: TransportConnection) { events.append("ready") }
    func connectionHasSlots() { events.append("slots") }
    func connectionDraining(_ connection: TransportConnection) { events.append("draining") }
    func connectionEnded(_ connection: TransportConnection, _ words: ByteBuffer) {
      events.append("ended: \(text(words)!)")
    }
    func connectionSilent(_ time: UInt64) {}
    var hasListeners: Bool { false }
    var hasWorked: Bool { true }
  }

  /// A connection, which is ready, with its owner.
  struct Scene {
    let owner = Owner()
    let one: CarriedConnection

    init() throws {
      one = try #require(
        CarriedConnection.make(
          .http1, to: bytes("peer"), CarriedConnectionTests.settings(), .connect, owner, at: 5))
      run()
      #expect(owner.events == ["ready"] && one.connection.slots == 1 && one.connection.drainReason == nil)
      owner.events = []
    }

    @discardableResult func run() -> String {
      String(decoding: CarriedConnectionTests.exchange(one, at: 6), as: UTF8.self)
    }

    /// Opens a stream with a request that has no body.
    func open() -> (CarriedConnectionTests.Caller, TransportStream) {
      let caller = CarriedConnectionTests.Caller()
      let stream = one.connection.newStream(caller, sending: PieceQueue())
      stream.endsAfterPieces = true
      stream.open()
      return (caller, stream)
    }

    func receive(_ answer: String) {
      #expect(Array(answer.utf8).withUnsafeBytes { one.receive($0) })
      run()
    }
  }

  static func words(_ end: StreamEnd?) -> String {
    switch end {
    case nil: "none"
    case .trailers: "trailers"
    case .body: "body"
    case .neverSent(let words): "never sent: \(text(words)!)"
    case .unanswered(let words): "unanswered: \(text(words)!)"
    case .lost(let words): "lost: \(text(words)!)"
    case .broken(let words): "broken: \(text(words)!)"
    default: "another end"
    }
  }

  static let answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd"
  static let unused = "ended: the connection is no longer used"

  @Test func oneCallAtATime() throws {
    let scene = try Scene()
    let (first, firstStream) = scene.open()
    #expect(scene.one.connection.slots == 0)
    scene.one.connection.isAsked = true
    let (second, secondStream) = scene.open()
    // The owner of a stream that gets no connection is told in the next turn, and not if it has left by then.
    let (third, thirdStream) = scene.open()
    thirdStream.leave(.cancelled)
    #expect(Self.words(second.end) == "none")
    #expect(scene.run().hasPrefix("POST /a.B/C HTTP/1.1\r\n"))
    #expect(Self.words(second.end) == "never sent: the connection has a call")
    #expect(Self.words(first.end) == "none" && Self.words(third.end) == "none")
    #expect(scene.owner.events.isEmpty && !scene.one.connection.hasAnswered)
    scene.receive(Self.answer)
    #expect(first.status == 200 && first.body == Array("abcd".utf8) && Self.words(first.end) == "body")
    #expect(scene.owner.events == ["slots"] && scene.one.connection.slots == 1)
    #expect(scene.one.connection.hasAnswered && !scene.one.connection.isAsked)
    scene.one.connection.forgetAnswer()
    #expect(!scene.one.connection.hasAnswered)
    // Nobody has asked for further slots.
    let (fourth, fourthStream) = scene.open()
    scene.run()
    scene.receive(Self.answer)
    #expect(Self.words(fourth.end) == "body" && scene.owner.events == ["slots"])
    withExtendedLifetime((firstStream, secondStream, fourthStream)) {}
  }

  @Test func drainsAtOnceWithoutACall() throws {
    let scene = try Scene()
    scene.one.connection.drain()
    scene.one.connection.drain()
    #expect(scene.one.connection.slots == 0 && scene.one.isClosed && scene.owner.events.isEmpty)
    #expect(text(scene.one.connection.drainReason) == "the connection is no longer used")
    let (caller, stream) = scene.open()
    scene.run()
    #expect(scene.owner.events == [Self.unused])
    #expect(Self.words(caller.end) == "never sent: the connection is no longer used")
    withExtendedLifetime(stream) {}
  }

  @Test func drainsAfterItsCall() throws {
    let scene = try Scene()
    let (caller, stream) = scene.open()
    scene.run()
    scene.one.connection.drain()
    scene.run()
    #expect(!scene.one.isClosed && scene.one.connection.slots == 0 && scene.owner.events.isEmpty)
    scene.receive(Self.answer)
    #expect(Self.words(caller.end) == "body" && scene.one.isClosed && scene.owner.events == [Self.unused])
    withExtendedLifetime(stream) {}
  }

  /// A call that leaves before its request was written keeps the connection, but not one that drains.
  @Test(arguments: [false, true])
  func callThatLeavesEarly(_ drains: Bool) throws {
    let scene = try Scene()
    let (_, stream) = scene.open()
    if drains { scene.one.connection.drain() }
    stream.leave(.cancelled)
    #expect(scene.run().isEmpty)
    #expect(scene.one.isClosed == drains && scene.owner.events == (drains ? [Self.unused] : []))
    #expect(scene.one.connection.slots == (drains ? 0 : 1))
  }

  @Test func callThatLeavesAfterItsRequest() throws {
    let scene = try Scene()
    let (_, stream) = scene.open()
    scene.run()
    stream.leave(.cancelled)
    scene.run()
    #expect(scene.owner.events == ["ended: a call has ended before its answer"])
  }

  @Test(arguments: [false, true])
  func closedByItsOwner(_ isTimeout: Bool) throws {
    let scene = try Scene()
    let (caller, stream) = scene.open()
    scene.run()
    if isTimeout { scene.one.connection.timedOut() } else { scene.one.connection.closeGracefully() }
    let words = isTimeout ? "connect timeout" : "the connection is no longer used"
    #expect(Self.words(caller.end) == "unanswered: \(words)" && scene.one.isClosed)
    scene.run()
    #expect(scene.owner.events == ["ended: \(words)"] && scene.one.connection.facts == nil)
    withExtendedLifetime(stream) {}
  }

  private static let ended: [(String, Bool, String)] = [
    ("", true, "connection closed by peer without a request"),
    ("HTTP/1.1 408 Timeout\r\n\r\n", false, "the server sent bytes without a request"),
    ("\r\n", true, "the server sent bytes without a request"),
  ]

  /// The end of the connection without a call, after bytes that no request has asked for, or with an answer.
  @Test(arguments: ended)
  func endWithoutACall(_ received: String, _ ends: Bool, _ words: String) throws {
    let scene = try Scene()
    if ends { scene.one.receiveEnd() }
    scene.receive(received)
    #expect(scene.one.isClosed && scene.owner.events == ["ended: \(words)"])
    #expect(scene.one.connection.slots == 0 && text(scene.one.connection.drainReason) == words)
    #expect(!scene.one.connection.hasAnswered)
  }

  private static let head = "HTTP/1.1 200 OK\r\n"
  private static let withAnswer = "the server has ended the connection with its answer"
  private static let surplus =
    "the server broke the rules of HTTP/1.1: 3 bytes behind the end of its answer"
  private static let byPeer = "connection closed by peer before the answer was complete"

  private static let ends: [(String, Bool, String, String?)] = [
    (answer, false, "body", nil), (answer, true, "body", withAnswer),
    ("\(head)Content-Length: 0\r\n\r\n", false, "trailers", nil),
    ("\(head)Content-Length: 4\r\nConnection: close\r\n\r\nabcd", false, "body", withAnswer),
    ("HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nabcd", false, "body", withAnswer),
    ("\(head)\r\nabc", true, "body", withAnswer), ("\(head)\r\nabc", false, "none", nil),
    ("\(head)Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-a: b\r\n\r\n", false, "trailers", nil),
    ("\(answer)efg", false, "body", surplus), ("\(answer)\r\n\r", true, "body", surplus),
    ("", true, "unanswered: \(byPeer): it has sent no answer", "\(byPeer): it has sent no answer"),
  ]

  /// How a call and its connection end. `ends`: the peer sends no more bytes. The last text is nil if the
  /// connection stays.
  @Test(arguments: ends)
  func endOfACall(_ received: String, _ ends: Bool, _ end: String, _ words: String?) throws {
    // Bytes that come after the answer, and not with it, belong to no request.
    for step in words == Self.surplus ? [1000] : [1, 1000] {
      let scene = try Scene()
      let (caller, stream) = scene.open()
      scene.run()
      var rest = Array(received.utf8)[...]
      while !rest.isEmpty, !scene.one.isClosed {
        let part = Array(rest.prefix(step))
        rest = rest.dropFirst(step)
        #expect(part.withUnsafeBytes { scene.one.receive($0) })
        if rest.isEmpty, ends { scene.one.receiveEnd() }
        scene.run()
      }
      if received.isEmpty { scene.one.receiveEnd() }
      scene.run()
      #expect(Self.words(caller.end) == end, "step \(step)")
      #expect(scene.owner.events == (words.map { ["ended: \($0)"] } ?? []), "step \(step)")
      #expect(scene.one.isClosed == (words != nil), "step \(step)")
      #expect(scene.one.connection.hasAnswered == !received.isEmpty)
      withExtendedLifetime(stream) {}
    }
  }

  /// Takes nothing of its answer's body by itself.
  final class SlowCaller: StreamOwner {
    override func streamOpens(_ stream: TransportStream, _ fields: FieldList) -> Bool {
      fields.add(":method", "GET") && fields.add(":scheme", "http") && fields.add(":path", "/a")
        && fields.add(":authority", "x")
    }
    override func streamSends() -> Bool { false }
    override func streamReceives(head: HeaderBlock, endsStream: Bool) {}
    override func streamReceives(_ bytes: ByteView) -> Int { 0 }
    override func streamChanged(_ stream: TransportStream) {}
  }

  /// While a call takes nothing, a window of its answer is kept. The rest is not read, and the loop has
  /// nothing to do.
  @Test func nothingIsReadForACallThatTakesNothing() throws {
    let scene = try Scene()
    let stream = scene.one.connection.newStream(SlowCaller(), sending: PieceQueue())
    stream.endsAfterPieces = true
    stream.open()
    scene.run()
    let window = CarriedConnectionTests.settings().limits.streamWindow
    let size = window * 2 + 1000
    let answer = Array("HTTP/1.1 200 OK\r\nContent-Length: \(size)\r\n\r\n".utf8)
    #expect((answer + [UInt8](repeating: 7, count: size)).withUnsafeBytes { scene.one.receive($0) })
    scene.run()
    #expect(stream.body.count == window && scene.one.unread == size - window)
    #expect(!scene.one.run(at: 7))
    // Reading goes on once half of the window is free, and not before.
    stream.consume(window / 2 - 1)
    scene.run()
    #expect(stream.body.count == window / 2 + 1 && scene.one.unread == size - window)
    stream.consume(1)
    scene.run()
    #expect(stream.body.count == window && scene.one.unread == size - window - window / 2)
    stream.consume(window)
    scene.run()
    stream.consume(stream.body.count)
    scene.run()
    #expect(scene.one.unread == 0 && scene.owner.events.isEmpty)
    stream.consume(stream.body.count)
    scene.run()
    #expect(Self.words(stream.end) == "body" && scene.one.connection.slots == 1)
  }
}
