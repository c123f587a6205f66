import Testing

@testable import Penstock

/// Each option of the library can be written, and no other.
@Suite(.timeLimit(.minutes(15))) struct OptionTests {
  /// The options below a heading of docs/options.md.
  static func documented(_ heading: String) throws -> Set<String> {
    let folders = #filePath.split(separator: "/", omittingEmptySubsequences: false).dropLast(3)
    let page = try readFile("\(folders.joined(separator: "/"))/docs/options.md")
    let lines = page.split(separator: "\n").drop { $0 != "## \(heading)" }.dropFirst()
    let rows = lines.prefix { !$0.hasPrefix("## ") }.filter { $0.hasPrefix("| `\"") }
    return Set(rows.compactMap { $0.split(separator: "\"").dropFirst().first.map(String.init) })
  }

  /// The keys of the outer object of a JSON text without strings that contain braces or colons.
  static func keys(_ json: String) -> Set<String> {
    var depth = 0
    var keys: Set<String> = []
    var word = ""
    for character in json {
      switch character {
      case "{", "[": depth += 1
      case "}", "]": depth -= 1
      case ":" where depth == 1: keys.insert(String(word.split(separator: "\"").last ?? ""))
      case ",": word = ""
      default: break
      }
      if depth == 1 { word.append(character) }
    }
    return keys
  }

  static var everySocketOption: SocketOptions {
    var options = SocketOptions()
    options.tcpNoDelay = false
    options.sendBufferBytes = 100_000
    options.receiveBufferBytes = 100_000
    options.tcpUserTimeout = .seconds(3)
    options.tcpKeepalive = .seconds(3)
    options.trafficClass = 184
    options.others = [.init(level: 1, option: 12, value: 3)]
    return options
  }

  static var everyChannelOption: ChannelOptions {
    var options = ChannelOptions(tls: .system)
    options.rpcProtocol = .connect
    options.http = .auto
    options.maxGetURLBytes = 100
    options.http1MaxConnections = 7
    options.http1IdleTimeout = .seconds(3)
    options.authority = "example.com"
    options.proxy = "environment"
    options.noProxy = ["*", "10.0.0.0/8"]
    options.localAddress = LocalAddress(ipv4: "127.0.0.2")
    options.bindInterface = "lo"
    options.socketOptions = everySocketOption
    options.contentSubtype = "json"
    options.userAgent = "test"
    options.defaultTimeout = .seconds(3)
    options.maxReceiveMessageBytes = 100
    options.maxSendMessageBytes = 100
    options.compression = .gzip
    options.compressionMinBytes = 10
    options.maxHeaderListBytes = 2_000
    options.connectTimeout = .seconds(3)
    options.waitsForReady = true
    options.serviceConfig = "{}"
    options.retries = false
    options.replayBytes = 10
    options.channelReplayBytes = 10
    options.maxConnectionsPerSubchannel = 2
    options.maxConnections = 9
    options.maxPendingCalls = 9
    options.maxBufferedBytes = 9
    options.healthChecks = false
    options.maxConnectionAge = .seconds(3)
    options.idleTimeout = .seconds(3)
    options.initialBackoff = .seconds(3)
    options.maxBackoff = .seconds(3)
    options.backoffMultiplier = 1.5
    options.backoffJitter = 0
    options.dnsSRV = "_grpc._tcp"
    options.minResolveInterval = .seconds(3)
    options.resolveInterval = .seconds(3)
    options.keepaliveTime = .seconds(3)
    options.keepaliveTimeout = .seconds(3)
    options.keepaliveWithoutCalls = true
    options.silenceEvent = .seconds(3)
    options.slowCallback = .milliseconds(40)
    options.initialStreamWindowBytes = 100_000
    options.initialConnectionWindowBytes = 100_000
    options.maxWindowBytes = 1_000_000
    options.trace = .on
    options.tieOrder = .lifo
    return options
  }

  @Test func everyOptionOfAChannelCanBeWritten() throws {
    let options = Self.everyChannelOption
    #expect(Self.keys(options.text.finished) == (try Self.documented("`penstock_channel_new`")))
    _ = try Channel("dns:///example.com", options: options)
  }

  @Test func everyOptionOfASocketCanBeWritten() throws {
    let text = Self.everySocketOption.text.finished
    #expect(Self.keys(text) == (try Self.documented("\"socket_options\" of a channel")))
    #expect(text.contains("\"others\":[[1,12,3]]"))
    #expect(
      LocalAddress(ipv4: "127.0.0.2", ipv6: "::1").text.finished == #"{"ipv4":"127.0.0.2","ipv6":"::1"}"#)
  }

  @Test func everyOptionOfTLSCanBeWritten() throws {
    var certificates = TLSOptions.Certificates(rootsPEM: "a")
    certificates.rootsFile = "b"
    certificates.certificateChainPEM = "c"
    certificates.certificateChainFile = "d"
    certificates.privateKeyPEM = "e"
    certificates.privateKeyFile = "f"
    certificates.serverNames = ["g", "10.0.0.1"]
    certificates.verifies = false
    certificates.crlsPEM = "h"
    certificates.crlsFile = "i"
    certificates.spkiPins = ["j"]
    certificates.spiffeIDs = ["spiffe://k"]
    certificates.sessionResumption = true
    certificates.minVersion = "1.3"
    certificates.ciphers = ["TLS_AES_128_GCM_SHA256"]
    certificates.keyLogFile = "l"
    #expect(Self.keys(certificates.text.finished) == (try Self.documented("\"tls\" of a channel")))
    #expect(certificates.text.finished.contains(#""server_name":["g","10.0.0.1"]"#))
  }

  @Test func oneServerNameIsTheFirstOfSeveral() {
    var certificates = TLSOptions.Certificates()
    #expect(certificates.serverName == nil)
    certificates.serverNames = ["a", "b"]
    #expect(certificates.serverName == "a")
    certificates.serverName = "c"
    #expect(certificates.serverNames == ["c"])
    certificates.serverName = nil
    #expect(certificates.serverNames == nil)
  }

  @Test func everyOptionOfACallCanBeWritten() throws {
    var options = CallOptions(timeout: .seconds(3), metadata: ["x": "y"], waitsForReady: true)
    options.credentials = ["authorization": "x"]
    options.idempotency = .noSideEffects
    options.authority = "example.com"
    options.contentSubtype = "json"
    options.compression = .deflate
    options.compressionMinBytes = 10
    options.maxReceiveMessageBytes = 100
    options.maxSendMessageBytes = 100
    options.sendBufferBytes = 100
    options.trace = .off
    // Metadata does not go by JSON, and functions that wait for a signal are not used.
    let apart: Set = ["metadata", "interruptible"]
    #expect(
      Self.keys(options.text(subtype: nil).finished)
        == (try Self.documented("`penstock_call_options_new`")).subtracting(apart))
    #expect(try options.made(subtype: nil, on: .cleartext) != nil)
    #expect(try CallOptions().made(subtype: nil, on: .cleartext) == nil)
  }

  @Test func everyOptionOfARuntimeWithThreadsCanBeWritten() throws {
    var options = RuntimeOptions(loops: 2)
    options.maxWorkers = 3
    // These are about threads that wait in functions of the library, which this module has not.
    let blocking: Set = ["mode", "caller_drives", "linger_us", "spin_us"]
    #expect(
      Self.keys(options.text.finished)
        == (try Self.documented("`penstock_runtime_new`")).subtracting(blocking))
    _ = try Runtime(options)
  }

  @Test func anOptionOutOfRangeIsNamed() {
    var options = ChannelOptions.cleartext
    options.backoffMultiplier = .infinity
    let error = #expect(throws: PenstockError.self) { _ = try Channel("localhost:1", options: options) }
    #expect(error?.code == .invalidOption)
    #expect(error?.message.contains("backoff_multiplier") == true)
    #expect(throws: PenstockError.self) { _ = try Channel("", options: .cleartext) }
  }

  @Test func textsAndTimesAreWrittenAsTheyAre() {
    #expect(OptionText.quoted("a\"\\\n\u{1}ä") == "\"a\\\"\\\\\\u000a\\u0001ä\"")
    #expect(Duration.nanoseconds(1).milliseconds == 1)
    #expect(Duration.milliseconds(1500).milliseconds == 1500)
    #expect(Duration.seconds(Int64.max).milliseconds == .max)
    #expect(Duration.seconds(3).microseconds == 3_000_000)
  }
}
