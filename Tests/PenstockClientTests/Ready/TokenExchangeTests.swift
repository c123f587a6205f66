import PenstockCall
import PenstockChannel
import PenstockTestSupport
import PenstockTransport
import PenstockWire
import Testing

@testable import PenstockClient
@testable import PenstockLoop
@testable import PenstockReady

private let second = SimulationTests.second

/// Tests of tokens from a token server in a simulated world: when it is asked, and when not.
@Suite(.timeLimit(.minutes(15))) struct TokenExchangeTests {
  /// A channel to a server of RPCs, and a token server at another port of the same world.
  final class Setting {
    let ready: SimulatedReadyTests.Setting
    private var server: ClientChannel?
    /// The forms that the token server has got.
    private(set) var forms: [String] = []
    /// The status of the token server's answers, its header fields and its body.
    var status = "200"
    var fields: [(String, String)] = []
    var body = #"{"access_token":"t","token_type":"bearer","expires_in":36000}"#

    init(_ change: (inout TokenExchange.Options) -> Void = { _ in }) throws {
      var options = TokenExchange.Options()
      options.bearer.header = bytes("authorization")
      options.bearer.prefix = bytes("Bearer ")
      options.bearer.allowsCleartext = true
      options.path = bytes("/token\0")
      options.clientID = bytes("me")
      change(&options)
      var made: ClientChannel?
      ready = try SimulatedReadyTests.Setting { client in
        let channel = try Self.channel(client)
        made = channel
        return TokenExchange.interceptor(options, channel)
      }
      server = made
      ready.world.servers[81] = { [unowned self] said, socket in
        SimulationTests.answer(said, socket) { stream, payload in
          self.forms.append(String(decoding: payload, as: UTF8.self))
          return Frame.headers(
            stream, [(":status", self.status), ("content-type", "application/json")] + self.fields
          ).encoded + Frame.data(stream, Array(self.body.utf8), end: true).encoded
        }
      }
    }

    private static func channel(_ client: TestClient) throws -> ClientChannel {
      let name = bytes("ipv4:10.0.0.1:81")
      let loop = client.runtime.loopForChannel()
      var options = ChannelOptions()
      options.tls = nil
      guard case .made(let made) = Channel.make(runtime: loop.runtime, target: name.view, options: options)
      else { fatalError("no channel") }
      client.runtime.addUser()
      return ClientChannel(
        client.runtime, loop, made, target: terminated(name),
        authority: terminated(ByteBuffer(copying: made.defaultAuthority)!), defaults: CallDefaults(),
        newestFirst: false)
    }

    deinit { _ = server?.close() }
  }

  @Test func aTokenOfTheServerIsSent() throws {
    let setting = try Setting { $0.scope = bytes("a b") }
    #expect(setting.ready.call() == .ok)
    #expect(setting.ready.call() == .ok)
    #expect(setting.forms == ["grant_type=client_credentials&scope=a%20b&client_id=me"])
  }

  @Test func theFormOfEachGrant() throws {
    let refreshing = try Setting { options in
      options.grant = .refreshToken
      options.refreshToken = bytes("r&1")
      options.audience = bytes("you")
      options.clientSecret = bytes("s")
      options.hasSecretInForm = true
    }
    #expect(refreshing.ready.call() == .ok)
    #expect(
      refreshing.forms == [
        "grant_type=refresh_token&refresh_token=r%261&audience=you&client_id=me&client_secret=s"
      ])
    let basic = try Setting { $0.clientSecret = bytes("s") }
    #expect(basic.ready.call() == .ok)
    #expect(basic.forms == ["grant_type=client_credentials"])
  }

  /// A server of RPCs that refuses each token.
  private func refuseTokens(_ setting: Setting) {
    setting.ready.world.servers[80] = { said, socket in
      SimulationTests.answer(said, socket) { stream, _ in
        Frame.headers(
          stream, [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "16")], end: true
        ).encoded
      }
    }
  }

  @Test func aTokenThatIsRefusedAtOnceIsReplacedOnce() throws {
    let setting = try Setting()
    refuseTokens(setting)
    #expect(setting.ready.call() == .unauthenticated)
    #expect(setting.forms.count == 2)
    #expect(setting.ready.call() == .unauthenticated)
    #expect(setting.ready.call() == .unauthenticated)
    #expect(setting.forms.count == 2)
    setting.ready.pass(second - 1)
    #expect(setting.ready.call() == .unauthenticated)
    #expect(setting.forms.count == 2)
    // A second later the tokens are not new any more.
    setting.ready.pass(1)
    #expect(setting.ready.call() == .unauthenticated)
    #expect(setting.forms.count > 2)
  }

  @Test(
    arguments: [
      ([], 1), ([("retry-after", "30")], 30), ([("retry-after", "0")], 1), ([("retry-after", "x")], 1),
      ([("retry-after", "7200")], 3600), ([("retry-after", "Sun, 09 Sep 2001 01:47:01 GMT")], 20),
      ([("retry-after", "Sun, 09 Sep 2001 01:46:01 GMT")], 1),
    ] as [([(String, String)], UInt64)])
  func theServerIsLeftAloneAfterAFailure(fields: [(String, String)], seconds: UInt64) throws {
    let setting = try Setting()
    (setting.status, setting.body, setting.fields) = ("503", "{}", fields)
    #expect(setting.ready.call() == .unavailable)
    #expect(setting.ready.call() == .unavailable)
    #expect(setting.forms.count == 1)
    setting.ready.pass(seconds * second - 1)
    #expect(setting.ready.call() == .unavailable)
    #expect(setting.forms.count == 1)
    setting.ready.pass(1)
    (setting.status, setting.body) = ("200", #"{"access_token":"t","token_type":"Bearer"}"#)
    #expect(setting.ready.call() == .ok)
    #expect(setting.forms.count == 2)
  }

  private static let begin = "no token from the token server: "

  @Test(arguments: [
    ("{", StatusCode.unavailable, "the answer is not a JSON object"),
    ("[]", .unavailable, "the answer is not a JSON object"),
    ("{} x", .unavailable, "the answer is not a JSON object"),
    ("{}", .unavailable, "the answer has no \"access_token\""),
    (#"{"access_token":"","token_type":"bearer"}"#, .unavailable, "the answer has no \"access_token\""),
    (#"{"error":"denied"}"#, .unauthenticated, "HTTP status 200: denied"),
    (#"{"error":"denied","error_description":"why"}"#, .unauthenticated, "HTTP status 200: denied: why"),
    (#"{"error":"a s3cret b","error_description":"s3cre"}"#, .unauthenticated, "HTTP status 200: s3cre"),
    (#"{"error":"s3cret","error_description":"bWU6czNjcmV0"}"#, .unauthenticated, "HTTP status 200"),
    (#"{"access_token":"t"}"#, .unauthenticated, "\"token_type\" is not \"Bearer\", but \"\""),
    (
      #"{"access_token":"t","token_type":"mac"}"#, .unauthenticated,
      "\"token_type\" is not \"Bearer\", but \"mac\""
    ),
    (
      #"{"access_token":"a\u00e9","token_type":"bearer"}"#, .unavailable,
      "\"access_token\" is not visible ASCII"
    ),
  ])
  func answersThatGiveNoToken(body: String, code: StatusCode, words: String) throws {
    let setting = try Setting { $0.clientSecret = bytes("s3cret") }
    setting.body = body
    let (found, message) = setting.ready.answer()
    #expect(found == code && message == Self.begin + words)
  }

  @Test(
    arguments: [
      (#""expires_in":100"#, 100), (#""expires_in":"100""#, 100), (#""expires_in":"x""#, 50),
      (#""x":1"#, 50), (#""expires_in":null"#, 50), (#""expires_in":[]"#, 50),
      (#""expires_in":1000000000"#, 200),
    ] as [(String, UInt64)])
  func theLifetimeOfAToken(member: String, seconds: UInt64) throws {
    let setting = try Setting { options in
      options.lifetime = 50 * second
      options.bearer.refreshEarly = 0
    }
    setting.body = #"{"access_token":"t","token_type":"BEARER",\#(member)}"#
    #expect(setting.ready.call() == .ok)
    setting.ready.pass(seconds * second - 1)
    #expect(setting.ready.call() == .ok)
    #expect(setting.forms.count == 1)
    setting.ready.pass(1)
    #expect(setting.ready.call() == .ok)
    #expect(setting.forms.count == (seconds < 200 ? 2 : 1))
  }

  @Test func theServerReplacesTheRefreshToken() throws {
    let setting = try Setting { options in
      options.grant = .refreshToken
      options.refreshToken = bytes("one")
      options.bearer.refreshEarly = 0
    }
    setting.body = #"{"access_token":"t","token_type":"bearer","expires_in":10,"refresh_token":"two"}"#
    #expect(setting.ready.call() == .ok)
    setting.ready.pass(10 * second)
    setting.body = #"{"access_token":"t","token_type":"bearer","expires_in":10,"refresh_token":""}"#
    #expect(setting.ready.call() == .ok)
    setting.ready.pass(10 * second)
    #expect(setting.ready.call() == .ok)
    #expect(
      setting.forms
        == ["one", "two", "two"].map { "grant_type=refresh_token&refresh_token=\($0)&client_id=me" })
  }
}
