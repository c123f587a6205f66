import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockClient
@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop
@testable import PenstockTransport

/// A server in a simulated world that permits a limited number of concurrent calls. It answers a call when
/// the test calls `answer`.
final class SparingServer {
  struct Request: Equatable {
    let connection: Int
    let stream: Int32
    let message: UInt8
  }

  let world = World()
  /// The limits on concurrent calls: the first element for the first connection, and so on. The last element
  /// is for all later connections, too.
  var limits: [UInt32]
  /// The requests that the server has received, in order.
  private(set) var requests: [Request] = []
  private(set) var sockets: [SimulatedSocket] = []
  /// Called when the client has acknowledged the server's SETTINGS on a connection. The arguments are the
  /// number of the connection and its socket.
  var welcome: (Int, SimulatedSocket) -> Void = { _, _ in }

  init(_ limits: UInt32...) {
    self.limits = limits
    world.servers[80] = { [unowned self] said, socket in take(said, socket) }
  }

  var messages: [UInt8] { requests.map { $0.message } }

  private func take(_ said: [UInt8], _ socket: SimulatedSocket) {
    socket.rest += said
    if !socket.hasBegun {
      guard socket.rest.count >= 24 else { return }
      socket.rest.removeFirst(24)
      socket.hasBegun = true
      socket.answer(Frame.settings([(3, limits[min(sockets.count, limits.count - 1)])]).encoded)
      sockets.append(socket)
    }
    let connection = sockets.firstIndex { $0 === socket }!
    while socket.rest.count >= 9 {
      let size = socket.rest[..<3].reduce(0) { $0 << 8 | Int($1) }
      guard socket.rest.count >= 9 + size else { return }
      let stream = socket.rest[5..<9].reduce(Int32(0)) { $0 << 8 | Int32($1) }
      let (type, flags) = (socket.rest[3], socket.rest[4])
      if type == 0 {
        requests.append(Request(connection: connection, stream: stream, message: socket.rest[9 + size - 1]))
      }
      if type == 4, flags == 1, socket.rest.count == 9 { welcome(connection, socket) }
      socket.rest.removeFirst(9 + size)
    }
  }

  /// Answers the request with this number, counted from 0 in order of arrival. Sends nothing if there is no
  /// such request.
  func answer(_ number: Int) {
    guard number < requests.count else { return }
    let id = requests[number].stream
    let answer: [Frame] = [.head(id), .message(id, [requests[number].message]), .trailers(id)]
    sockets[requests[number].connection].answer(answer.flatMap { $0.encoded })
  }

  func say(_ frame: Frame) { sockets[0].answer(frame.encoded) }
}

/// Tests of calls that wait until the server permits another stream.
@Suite(.timeLimit(.minutes(15))) struct PlacesTests {
  private let server: SparingServer
  private let client: TestClient

  init() throws {
    let server = SparingServer(1)
    self.server = server
    client = try #require(
      TestClient("ipv4:10.0.0.1:80", mode: .host, platform: server.world) { runtime in
        var options = ChannelOptions()
        options.tls = nil
        let name = bytes("ipv4:10.0.0.1:80")
        guard case .made(let made) = Channel.make(runtime: runtime, target: name.view, options: options)
        else { return nil }
        return made
      })
  }

  /// Runs the loop until no work is left.
  private func settle() {
    for _ in 0..<20 { _ = client.runtime.runtime.poll(timeoutMilliseconds: 1) }
  }

  private func open(_ message: UInt8, waits: Bool = false) -> ClientCall {
    let call = client.make("/a.B/C", .unary) {
      $0.deadline = 3600 * SimulationTests.second
      $0.waitsForReady = waits
    }
    call.open(buffer([message]))
    return call
  }

  private func answer(_ call: ClientCall) throws -> Answer { Answer(try #require(call.finish().1)) }

  private var waiting: Int { client.channel.transport.core.waiting.count }

  private func holder(_ call: ClientCall) -> String {
    call.view(within: 0).map { "\($0.holder)" } ?? "none"
  }

  @Test func aCallWaitsForAPlace() throws {
    let first = open(1)
    let second = open(2)
    #expect(holder(first) == "loop" && holder(second) == "loop")
    client.turn()
    #expect(holder(first) == "connection" && holder(second) == "connection")
    settle()
    #expect(server.messages == [1])
    #expect(holder(first) == "server" && holder(second) == "slot")
    server.answer(0)
    settle()
    #expect(server.messages == [1, 2] && holder(second) == "server")
    server.answer(1)
    #expect(try answer(first).message == [1])
    #expect(try answer(second).message == [2])
    #expect(server.sockets.count == 1)
  }

  @Test func placesGoByAge() throws {
    let calls = (1...4).map { open($0) }
    settle()
    #expect(server.messages == [1] && waiting == 3)
    for n in 0..<4 {
      server.answer(n)
      settle()
    }
    #expect(server.messages == [1, 2, 3, 4] && waiting == 0)
    for (n, call) in calls.enumerated() { #expect(try answer(call).message == [UInt8(n + 1)]) }
  }

  /// A call whose stream the server has refused gets the next stream, before calls that have not been sent yet.
  @Test func aRefusedCallStandsBeforeOthers() throws {
    let first = open(1)
    let second = open(2)
    settle()
    server.say(.reset(server.requests[0].stream, 7))
    settle()
    #expect(server.messages == [1, 1])
    server.answer(1)
    settle()
    #expect(server.messages == [1, 1, 2])
    server.answer(2)
    #expect(try answer(first).message == [1])
    #expect(try answer(second).message == [2])
  }

  /// The cancelled call's stream becomes free, and the next call uses it although the server sends nothing.
  @Test func aCallThatIsCancelledLeavesItsPlace() throws {
    let first = open(1)
    let second = open(2)
    settle()
    first.cancel(bytes("no").view)
    settle()
    #expect(server.messages == [1, 2])
    server.answer(1)
    #expect(try answer(second).message == [2])
    #expect(try answer(first).code == .cancelled)
  }

  @Test func theServerAllowsMoreAndLess() throws {
    let calls = (1...10).map { open($0) }
    settle()
    #expect(server.messages == [1])
    server.say(.settings([(3, 4)]))
    settle()
    #expect(server.messages == [1, 2, 3, 4])
    server.say(.settings([(3, 2)]))
    for n in 0..<3 {
      settle()
      #expect(server.messages.count == 4)
      server.answer(n)
    }
    settle()
    #expect(server.messages == [1, 2, 3, 4, 5])
    server.say(.settings())
    server.say(.settings([(3, 100)]))
    settle()
    #expect(server.messages.count == 10)
    for n in 3..<10 { server.answer(n) }
    for (n, call) in calls.enumerated() { #expect(try answer(call).message == [UInt8(n + 1)]) }
  }

  // MARK: Connections that go

  /// A call waits for a free stream when its connection ends. Its request was not sent, so it waits for
  /// another connection, and this does not count as a further attempt.
  @Test(arguments: [false, true])
  func aCallThatWaitsGoesToAnotherConnection(_ farewell: Bool) throws {
    server.limits = [0, 1]
    server.welcome = { connection, socket in
      if connection > 0 { return }
      if farewell { socket.answer(Frame.goAway(0).encoded) } else { socket.end() }
    }
    let call = open(1)
    settle()
    #expect(server.requests.map { $0.connection } == [1])
    server.answer(0)
    let answer = try answer(call)
    #expect(answer.message == [1] && answer.reply.stats.attempts == 1)
  }

  /// After two connections in a row that served no call, the channel waits for the back-off delay, and
  /// waiting calls fail.
  @Test func aCallThatWaitsLosesTwoConnections() throws {
    server.limits = [0]
    server.welcome = { connection, socket in
      socket.answer(Frame.goAway(0, 0, "number \(connection)").encoded)
    }
    let call = open(1)
    settle()
    #expect(server.sockets.count == 2)
    let answer = try answer(call)
    #expect(answer.code == .unavailable)
    #expect(
      answer.words.contains("the server sent GOAWAY (NO_ERROR: number 1); failed 2 times; next attempt in "))
  }

  /// A server processes only one request on each connection, and refuses the others. Each other request is
  /// sent again on the next connection, until it is processed.
  @Test func aCallMayBePassedOverAnyNumberOfTimes() throws {
    server.limits = [100]
    let calls = (1...5).map { open($0) }
    settle()
    for connection in 0..<5 {
      let taken = try #require(server.requests.firstIndex { $0.connection == connection })
      server.sockets[connection].answer(Frame.goAway(server.requests[taken].stream).encoded)
      settle()
      server.answer(taken)
      settle()
    }
    let answers = try calls.map { try answer($0) }
    #expect(answers.map { $0.message } == (1...5).map { [$0] })
    #expect(answers.map { $0.reply.stats.attempts }.sorted() == [1, 2, 3, 4, 5])
  }

  /// A wait-for-ready call continues to wait after two connections that served no call.
  @Test func aPatientCallWaitsLonger() throws {
    server.limits = [0, 0, 1]
    let first = open(1)
    settle()
    server.sockets[0].end()
    settle()
    let patient = open(2, waits: true)
    settle()
    #expect(server.sockets.count == 2 && waiting == 2)
    server.sockets[1].end()
    settle()
    let lost = try answer(first)
    #expect(lost.code == .unavailable && lost.words.contains("connection closed by peer; failed 2 times"))
    for _ in 0..<20 { _ = client.runtime.runtime.poll(timeoutMilliseconds: 100) }
    #expect(server.sockets.count == 3)
    server.answer(0)
    #expect(try answer(patient).message == [2])
  }

  // MARK: Many

  @Test func callsThatWaitAndEndAreForgotten() throws {
    server.limits = [0]
    for _ in 0..<20 {
      let calls = (0..<100).map { open($0) }
      settle()
      #expect(waiting >= 100)
      for call in calls { call.cancel(bytes("no").view) }
      settle()
      #expect(waiting < 200)
    }
  }

  // MARK: Over sockets

  /// A request that waits for a free stream was not sent, so it can use another connection, even if it is
  /// larger than the limit for retries.
  @Test func aLargeRequestThatWaitsGoesToANewConnection() throws {
    let server = RawServer(
      { peer in
        peer.begin([(3, 0)])
        // When the client acknowledges the SETTINGS, its call already waits for a stream.
        while let frame = peer.frame(4), frame.flags == 0 {}
        peer.send(.goAway(0))
        peer.waitForEnd()
      },
      { peer in
        peer.begin()
        let id = peer.request()
        peer.send(.head(id), .message(id, [9]), .trailers(id))
        peer.waitForEnd()
      })
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    let answer = client.unary("/a.B/C", [UInt8](repeating: 1, count: 2 << 20))
    #expect(answer.code == .ok && answer.message == [9])
    #expect(server.connections == 2)
  }

  @Test func streamsBeyondTheLimitQueue() throws {
    let server = RawServer { peer in
      peer.begin([(3, 1)])
      var open: Int32 = 0
      while let frame = peer.readFrame() {
        if frame.type == 4, frame.flags == 0 { peer.send(.settingsAck) }
        if frame.type == 1 {
          peer.expect(open == 0, "two streams at once")
          open = frame.stream
        }
        if frame.type == 0 {
          // While this stream is open, the client must not open another stream. So no HEADERS frame may
          // arrive before the client acknowledges this PING.
          peer.send(Frame(type: 6, stream: 0, payload: [UInt8](repeating: 0, count: 8)))
          while let next = peer.readFrame(), next.type != 6 {
            peer.expect(next.type != 1, "two streams at once")
          }
          peer.send(.head(open), .data(open, frame.payload), .trailers(open))
          open = 0
        }
      }
    }
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    let calls = (0..<20).map { _ in client.make("/a.B/C", .unary) }
    for (n, call) in calls.enumerated() { call.open(buffer([UInt8(n)])) }
    for (n, call) in calls.enumerated() {
      let answer = Answer(try #require(call.finish().1))
      #expect(answer.code == .ok && answer.message == [UInt8(n)])
    }
    #expect(server.complaints == [])
  }

  @Test func aQueuedCallMeetsItsDeadline() throws {
    let server = RawServer { peer in
      peer.begin([(3, 1)])
      peer.waitForEnd()
    }
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    let first = client.make("/a.B/C", .unary) { $0.deadline = 300_000_000 }
    first.open(buffer([1]))
    let second = client.unary("/a.B/C", [2]) { $0.deadline = 100_000_000 }
    #expect(second.code == .deadlineExceeded)
    #expect(Answer(try #require(first.finish().1)).code == .deadlineExceeded)
  }
}

struct WaitQueueTests {
  private final class One: Queued {
    let number: Int
    var isWaiting = true
    init(_ number: Int) { self.number = number }
  }

  /// `popFirst` returns every element that still waits exactly once, in order. The queue does not keep
  /// removed elements. Elements that are put before all others leave first.
  @Test(arguments: 0..<50)
  func order(_ seed: UInt64) {
    var random = SplitMix(state: seed)
    var queue = WaitQueue<One>()
    var model: [One] = []
    var put = 0
    for _ in 0..<300 {
      let most = random.next() % 4 == 0 ? 2000 : 4
      switch random.next() % 5 {
      case 4:
        for _ in 0..<random.next() % 4 {
          model.insert(One(put), at: 0)
          queue.prepend(model[0])
          put += 1
        }
      case 0, 1:
        for _ in 0..<random.next() % UInt64(most) {
          model.append(One(put))
          queue.append(model.last!)
          put += 1
        }
      case 2:
        for _ in 0..<random.next() % UInt64(most) {
          #expect(queue.popFirst() === model.first)
          if model.isEmpty { break }
          model.removeFirst()
        }
      case _ where !model.isEmpty:
        for _ in 0..<random.next() % UInt64(most) where !model.isEmpty {
          let gone = model.remove(at: Int(random.next() % UInt64(model.count)))
          gone.isWaiting = false
          queue.forget()
        }
      default: break
      }
      #expect(queue.count >= model.count && queue.count <= 2 * model.count + 64)
    }
    var seen: [Int] = []
    while let one = queue.popFirst() { seen.append(one.number) }
    #expect(seen == model.map { $0.number })
  }

  /// The queue releases an element at once when the element leaves it.
  @Test func nothingIsKept() {
    var queue = WaitQueue<One>()
    for n in 0..<100 { queue.append(One(n)) }
    weak var first: One?
    first = queue.popFirst()
    #expect(first == nil && queue.popFirst()?.number == 1)
  }
}
