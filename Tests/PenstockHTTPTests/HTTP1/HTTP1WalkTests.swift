import Glibc
import PenstockCall
import PenstockChannel
import PenstockLink
import PenstockNames
import PenstockTestSupport
import PenstockWire
import Testing

@testable import PenstockHTTP
@testable import PenstockLoop

/// Tests a connection in all sequences of a few steps of its call, its peer and its socket. The connection itself checks
/// its invariants (HTTP1Invariants.swift) in each turn.
@Suite(.timeLimit(.minutes(15))) struct HTTP1WalkTests {
  enum Step: CaseIterable {
    /// A call that has its whole request; a call whose body goes on; the last piece of that body.
    case call, longCall, lastPiece
    case takeBytes, leave
    /// The socket takes no more bytes; one byte; all; or fails.
    case block, acceptOne, acceptAll, fail
    /// The peer sends a whole answer that fits into the window; the first part of a long one, which fills the window;
    /// the rest of that one.
    case answer, firstPart, rest
    case end, hangUp
    /// As `hangUp`, but a read would block instead of telling the end.
    case hangUpWithoutEnd
    case turn
  }

  let world = Simulation()

  static let window = 16
  static let answer = Array("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd".utf8)
  static let firstPart = Array("HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n".utf8) + body(24)
  static let rest = body(16)
  static func body(_ count: Int) -> [UInt8] { [UInt8](repeating: 0x61, count: count) }

  final class Pool: HTTP1Owner {
    var ends = 0
    override var keepsConnections: Bool { true }
    override func lend(_ facts: ConnectionFacts) {}
    override func answered() {}
    override func keep(_ connection: HTTP1Connection) {}
    override func ended(_ connection: HTTP1Connection, _ words: ByteBuffer) { ends += 1 }
    override func watchSilence(_ now: UInt64) {}
    override func add(_ stream: HTTP1Stream) {}
    override func forget(_ stream: HTTP1Stream) {}
  }

  /// An owner that takes bytes of the body only when the test says so.
  final class Owner: StreamOwner {
    var hasEnd = false
    override func streamOpens(_ stream: TransportStream, _ fields: FieldList) -> Bool {
      fields.add(":method", "POST") && fields.add(":scheme", "http") && fields.add(":path", "/a.B/C")
        && fields.add(":authority", "x")
    }
    override func streamSends() -> Bool { true }
    override func streamReceives(head: HeaderBlock, endsStream: Bool) {}
    override func streamReceives(trailers: HeaderBlock) {}
    override func streamReceives(_ bytes: ByteView) -> Int { 0 }
    override func streamChanged(_ stream: TransportStream) {
      if stream.end != nil { hasEnd = true }
    }
  }

  /// One connection, its peer and its call. The world and its runtime serve many scenes.
  final class Scene {
    let world: Simulation
    let runtime: Runtime
    let socket: SimulatedSocket
    let pool: Pool
    let connection: HTTP1Connection
    private var calls = 0
    private var owner: Owner?
    private var stream: HTTP1Stream?
    /// The part of an answer that the peer has still to send.
    private var script = Script.silent
    private var hungUp: Step?
    private var hasHungUp: Bool { hungUp != nil }

    enum Script { case silent, asked, begun, done }

    init(_ world: Simulation, _ runtime: Runtime) {
      self.world = world
      self.runtime = runtime
      var limits = TransportLimits()
      limits.streamWindow = window
      // The body of `call` leaves in several parts.
      limits.outputSize = 40
      let memory = malloc(HTTP1Owner.scratchSize)
      pool = Pool(
        runtime, TurnWork(runtime), ConnectionSettings(limits, silence: 0, Backoff.Policy(), nil), .connect,
        scratch: UnsafeMutableRawBufferPointer(start: memory, count: HTTP1Owner.scratchSize))
      world.servers[80] = { _, _ in }
      let literal = bytes("10.0.0.1")
      guard let address = withExtendedLifetime(literal, { SocketAddress(literal: literal.view, port: 80) }),
        case .socket(let socket, _) = world.connect(to: address, SocketSettings()),
        let simulated = socket as? SimulatedSocket
      else { fatalError("no socket") }
      self.socket = simulated
      connection = HTTP1Connection(Link(socket, copies: true, runtime), bytes("peer"), pool)
      _ = runtime.watch(socket.descriptor, 0, Ready { _ in })
      connection.begin()
      while world.goOn(atMost: 0) {}
    }

    /// Takes the step, if it can be taken now. False: it changes nothing.
    func take(_ step: Step) -> Bool {
      let connection = connection
      switch step {
      case .call, .longCall:
        guard calls < 2, connection.life == .idle, script == .silent || script == .done,
          connection.lookIfUsable()
        else { return false }
        calls += 1
        script = .asked
        let owner = Owner()
        let stream = HTTP1Stream(owner, sending: PieceQueue(), in: pool)
        (self.owner, self.stream) = (owner, stream)
        stream.append(BodyPiece(buffer(body(step == .call ? 40 : 8))))
        stream.endsAfterPieces = step == .call
        connection.assign(stream)
      case .lastPiece:
        guard let stream, !stream.endsAfterPieces, stream.end == nil else { return false }
        stream.send(BodyPiece(buffer(body(8))))
        stream.endBody()
      case .takeBytes:
        guard let stream, !stream.body.isEmpty else { return false }
        stream.consume(stream.body.count)
      case .leave:
        guard let stream else { return false }
        self.stream = nil
        stream.leave(.cancelled)
      case .block:
        guard socket.capacity == .max, !socket.writesFail else { return false }
        socket.capacity = 0
      case .acceptOne:
        guard socket.capacity == 0, !socket.writesFail else { return false }
        socket.capacity = 1
      case .acceptAll:
        guard socket.capacity != .max, !socket.writesFail else { return false }
        socket.capacity = .max
      case .fail:
        guard !socket.writesFail else { return false }
        socket.writesFail = true
      case .answer:
        guard script == .asked, !hasHungUp else { return false }
        script = .done
        socket.answer(HTTP1WalkTests.answer)
      case .firstPart:
        guard script == .asked, !hasHungUp else { return false }
        script = .begun
        socket.answer(HTTP1WalkTests.firstPart)
      case .rest:
        guard script == .begun, !hasHungUp else { return false }
        script = .done
        socket.answer(HTTP1WalkTests.rest)
      case .end, .hangUp, .hangUpWithoutEnd:
        guard !hasHungUp else { return false }
        hungUp = step
        if step == .end { socket.end() } else { socket.hangUp(ends: step == .hangUp) }
      case .turn:
        turn()
      }
      while world.goOn(atMost: 0) {}
      return true
    }

    /// Whether the call has its whole answer.
    var hasAnswer: Bool { owner?.hasEnd == true && stream?.end?.isComplete == true }

    func turn() { _ = runtime.poll(timeoutMilliseconds: 0) }

    /// Everything that decides what later steps do. So two scenes with one description have the same future.
    var description: String {
      let parser = connection.parser
      let interest = world.interest(in: socket.descriptor) ?? 0xFFFF
      let ending = hungUp.map { "\($0)" } ?? "-"
      let call = stream.map {
        "\($0.body.count) \($0.bytesToSend) \($0.endsAfterPieces) \($0.end == nil) \($0.connection == nil)"
      }
      return """
        \(connection.life) \(connection.reading) \(connection.isUnproven) \(connection.isScheduled) \
        \(connection.link.out.count) \(connection.unsent.bytes) \(parser.hasBegun) \(parser.bodyAhead) \
        \(connection.hasUntold) \(socket.capacity) \(socket.writesFail) \(socket.unread) \(interest) \
        \(calls) \(script) \(ending) \(call ?? "-") \(owner?.hasEnd ?? false)
        """
    }

    /// Whether the loop has nothing to do for the connection.
    var isAtRest: Bool {
      !connection.isScheduled && world.events(of: socket.descriptor) == 0
    }

    /// Ends the scene: the owner takes all bytes, the socket all of the request. Returns the fault; nil: there is none.
    func finish() -> String? {
      for _ in 0..<20 { turn() }
      if !isAtRest { return "the loop does not come to rest" }
      if !socket.writesFail { socket.capacity = .max }
      for _ in 0..<20 {
        _ = take(.lastPiece)
        _ = take(.takeBytes)
        turn()
      }
      if !isAtRest { return "the loop does not come to rest when all was taken" }
      if let stream, stream.end == nil {
        if hasHungUp || connection.life == .closed { return "the call does not end" }
        if socket.writesFail, !connection.link.isSent, !connection.life.isDeaf {
          return "a write has not failed"
        }
        if script == .done { return "the answer is not read" }
      }
      if connection.life == .closed, !socket.isClosed { return "the socket is open" }
      _ = take(.hangUp)
      for _ in 0..<20 {
        _ = take(.takeBytes)
        turn()
      }
      if connection.life != .closed || pool.ends != 1 { return "\(pool.ends) ends" }
      if let stream, stream.end == nil || owner?.hasEnd == false {
        return "the call does not hear of the end"
      }
      if connection.stream != nil || connection.link.out.count > 0 { return "bytes or a stream are left" }
      return nil
    }
  }

  static func host(_ world: Simulation) -> Runtime {
    var options = Runtime.Options()
    options.mode = .host
    guard case .made(let runtime) = Runtime.make(options, ClockMark(), world) else {
      fatalError("no runtime")
    }
    return runtime
  }

  /// Breadth first, so that each state is found by a shortest sequence. Of sequences that lead to the same state only
  /// one goes on.
  @Test func allSequences() throws {
    let runtime = Self.host(world)
    var known: Set<String> = []
    var front: [[Step]] = [[]]
    var lives: Set<String> = []
    var readings: Set<String> = []
    for _ in 0..<7 {
      var next: [[Step]] = []
      for path in front {
        var scene = Scene(world, runtime)
        for step in path { _ = scene.take(step) }
        lives.insert(HTTP1LifeTests.name(scene.connection.life))
        readings.insert(HTTP1LifeTests.name(scene.connection.reading))
        for step in Step.allCases where scene.take(step) {
          if known.insert(scene.description).inserted { next.append(path + [step]) }
          if let fault = scene.finish() {
            Issue.record("\(fault): \((path + [step]).map { "\($0)" })")
            return
          }
          scene = Scene(world, runtime)
          for step in path { _ = scene.take(step) }
        }
        _ = scene.finish()
      }
      front = next
    }
    #expect(known.count > 4000)
    // Only TLS writes after the request, so only with TLS a write can fail then.
    #expect(lives == Set(HTTP1LifeTests.states.map { $0.name }).subtracting(["deaf, sent"]))
    #expect(readings == Set(HTTP1LifeTests.readingStates.map { $0.name }))
    _ = runtime.shutdown(timeoutMilliseconds: 1000)
  }

  /// The whole request was sent, and then a write of TLS fails, while the window is full. The call gets its answer, which
  /// says that the connection stays open. It closes all the same, because no further request could be written.
  @Test func aWriteFailsAfterTheRequest() {
    let runtime = Self.host(world)
    let scene = Scene(world, runtime)
    for step in [Step.call, .turn, .turn, .firstPart, .turn, .rest] { #expect(scene.take(step), "\(step)") }
    #expect(scene.connection.life == .receiving)
    #expect(scene.connection.reading == .paused(peerHasEnded: false))
    scene.connection.follow(.writeFailed)
    #expect(scene.connection.life == .deaf(wasSent: true))
    for _ in 0..<4 {
      _ = scene.take(.takeBytes)
      scene.turn()
    }
    #expect(scene.hasAnswer)
    #expect(scene.connection.life == .closed && scene.pool.ends == 1)
    _ = runtime.shutdown(timeoutMilliseconds: 1000)
  }
}
