import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockTestSupport
import PenstockTestCertificates
import Testing

@testable import PenstockNames

@testable import PenstockClient
@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop
@testable import PenstockFraming
@testable import PenstockTransport

/// Tests of calls on channels with a connect step and a resolver that these tests define. The step is not
/// TLS.
@Suite(.timeLimit(.minutes(15))) struct ConnectorTests {
  let certificates = Certificates.shared

  /// A connect step that sends "HELLO", and is done when the peer has sent "OK".
  final class Greeting: ConnectStep {
    private var isSaid = false
    private static let hello: StaticString = "HELLO\n"

    override var during: StaticString { " during the greeting" }

    override func take(_ link: Link) -> Outcome {
      if !isSaid {
        isSaid = true
        return link.out.append(Greeting.hello.bytes) ? .more : .failed(bytes("no memory"))
      }
      guard let end = link.input.view.firstIndex(of: 0x0A) else { return .more }
      let line = String(decoding: link.input.view[..<end], as: UTF8.self)
      link.input.consume(end + 1)
      return line == "OK" ? .done : .failed(bytes("the peer greets with \"\(line)\""))
    }

    override func guess(_ text: ByteBuffer) { text.say("; it may want a password") }
  }

  final class GreetedDestination: Destination {
    override func steps(to endpoint: Endpoint, _ verifier: ServerVerifier?) -> Steps {
      guard case .made(let rest) = super.steps(to: endpoint, verifier) else {
        return .failed(bytes("no TLS"))
      }
      let greeting = Greeting()
      greeting.next = rest
      return .made(greeting)
    }
  }

  /// A resolver for tests. Each look-up gets the next of `outcomes`, in an item of the runtime's inbox.
  final class Answers: Resolver {
    private let runtime: Runtime
    private var outcomes: [ResolverOutcome]
    private(set) var asked = 0

    init(_ runtime: Runtime, _ outcomes: [ResolverOutcome]) {
      self.runtime = runtime
      self.outcomes = outcomes
    }

    override func start(_ completion: any ResolverCompletion) {
      asked += 1
      let outcome = outcomes.removeFirst()
      runtime.post(Work { completion.resolved(outcome) })
    }
  }

  func channel(
    _ target: String, _ runtime: Runtime, greeted: Bool = false, timeout: UInt64 = 10_000_000_000,
    backoff: UInt64 = 1_000_000_000,
    tls: TLSOptions? = nil, resolver: Resolver? = nil
  ) -> Channel? {
    let name = bytes(target)
    guard case .target(let parsed) = Target.parse(name.view) else { return nil }
    var source: TLSSource?
    if let tls {
      guard case .made(let made) = TLSSource.make(tls) else { return nil }
      source = made
    }
    var options = ChannelOptions()
    options.connectTimeout = timeout
    options.backoff.initial = backoff
    let destination =
      greeted
      ? GreetedDestination(parsed, name, source, TransportLimits(), options)
      : Destination(parsed, name, source, TransportLimits(), options)
    let defaults = RequestDefaults(
      privacy: source == nil ? .cleartext : .tls, authority: parsed.authority, userAgent: bytes("test"))
    let core = ChannelCore(
      runtime, defaults, destination, resolver ?? Resolver.make(parsed.location, services: nil, runtime))
    return Channel(core, runtime)
  }

  // MARK: A step of one's own

  /// The peer sends its greeting and its HTTP/2 SETTINGS in one piece.
  @Test func aGreetingBeforeHTTP() throws {
    let server = RawServer { peer in
      peer.expect(peer.readPlainLine() == "HELLO", "no greeting")
      peer.sendPlain("OK\n" + String(decoding: Frame.settings().encoded, as: UTF8.self))
      ChannelTests.echo(peer)
    }
    defer { server.stop() }
    let client = try #require(
      TestClient(server.target) { channel(server.target, $0, greeted: true) })
    for _ in 0..<3 { #expect(client.unary("/a.B/C", [1, 2]).message == [1, 2]) }
    #expect(server.connections == 1)
    #expect(server.complaints.isEmpty)
  }

  @Test func aGreetingBeforeTLS() throws {
    let server = RawServer(tls: serverTLS()) { peer in
      peer.expect(peer.readPlainLine() == "HELLO", "no greeting")
      peer.sendPlain("OK\n")
      ChannelTests.echo(peer)
    }
    defer { server.stop() }
    let client = try #require(
      TestClient(server.target) { channel(server.target, $0, greeted: true, tls: certificates.client()) })
    let message = [UInt8](repeating: 7, count: 16_000)
    for _ in 0..<3 { #expect((client.unary("/a.B/C", message).message == message) == true) }
    #expect(server.connections == 1)
    #expect(server.complaints.isEmpty)
  }

  @Test func itsWordsAreItsOwn() throws {
    let server = RawServer(
      { peer in
        _ = peer.readPlainLine()
        peer.sendPlain("NO\n")
        peer.waitForEnd()
      },
      { _ = $0.readPlainLine() },
      { peer in
        _ = peer.readPlainLine()
        peer.waitForEnd()
      })
    defer { server.stop() }
    for words in [
      "the peer greets with \"NO\"", "connection closed by peer during the greeting; it may want a password",
      "connect timeout during the greeting",
    ] {
      let client = try #require(
        TestClient(server.target) {
          channel(server.target, $0, greeted: true, timeout: 500_000_000)
        })
      #expect(client.unary("/a.B/C", [1]).cause == "could not connect to \(server.target): " + words)
    }
  }

  // MARK: A resolver of one's own

  @Test func namesFromElsewhere() throws {
    let server = RawServer(ChannelTests.echo)
    defer { server.stop() }
    let host = bytes("127.0.0.1")
    func address(_ port: UInt16) -> SocketAddress { SocketAddress(literal: host.view, port: port)! }
    var answers: Answers?
    let client = try #require(
      TestClient("somewhere:1") {
        let made = Answers(
          $0, [.failed(Array("not yet".utf8)), .addresses([address(1), address(server.port)])])
        answers = made
        return channel("somewhere:1", $0, backoff: 1_000_000, resolver: made)
      })
    let early = client.unary("/a.B/C", [1])
    #expect(early.code == .unavailable)
    #expect(early.words == "the name of somewhere:1 does not resolve: not yet")
    for _ in 0..<3 { #expect(client.unary("/a.B/C", [1]) { $0.waitsForReady = true }.message == [1]) }
    #expect(answers?.asked == 2)
  }

  @Test func namesThatNeverCome() throws {
    final class Silent: Resolver {
      var isStopped = false
      override func start(_ completion: any ResolverCompletion) {}
      override func stop() { isStopped = true }
    }
    let silent = Silent()
    let client = try #require(
      TestClient("somewhere:1") {
        channel("somewhere:1", $0, timeout: 100_000_000, resolver: silent)
      })
    #expect(client.unary("/a.B/C", [1]).words == "the name of somewhere:1 did not resolve in time")
    #expect(silent.isStopped)
  }
}
