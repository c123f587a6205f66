import PenstockTestSupport
import PenstockCall
import PenstockChannel
import PenstockWire

@testable import PenstockNames

@testable import PenstockClient
@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop
@testable import PenstockFraming
@testable import PenstockTransport

/// Makes an HTTP/1.1 client with the tests' own framing (`LineFraming`), in which each message is a line of
/// hexadecimal digits.
func http1Client(
  _ target: String, _ opening: Framing.Opening = .atOnce, mode: Runtime.Mode = .thread,
  platform: Platform = Platform(), tls: TLSOptions? = nil,
  _ change: @escaping (inout ChannelOptions) -> Void = { _ in }
) -> TestClient? {
  TestClient(target, mode: mode, platform: platform) { runtime in
    let name = bytes(target)
    guard case .target(let parsed) = Target.parse(name.view) else { return nil }
    var options = ChannelOptions()
    options.rpc = .connect
    change(&options)
    var source: TLSSource?
    if var tls {
      tls.http = options.wantedHTTP
      guard case .made(let made) = TLSSource.make(tls) else { return nil }
      source = made
    }
    var limits = TransportLimits()
    limits.streamWindow = options.initialStreamWindow
    limits.maxHeaderList = options.maxHeaderListBytes
    let defaults = RequestDefaults(
      privacy: source == nil ? .cleartext : .tls, authority: parsed.authority, userAgent: bytes("test"),
      framings: LineFraming.Factory(opening), rpc: .connect)
    let destination = Destination(parsed, name, source, limits, options)
    let resolver = Resolver.make(parsed.location, services: nil, runtime)
    return Channel(ChannelCore(runtime, defaults, destination, resolver), runtime, tls)
  }
}

/// A request that a server has read.
struct Request1 {
  /// The lines of the head, without their line ends.
  var lines: [String]
  var body: [UInt8] = []

  func value(_ name: String) -> String? {
    lines.dropFirst().first { $0.hasPrefix(name + ": ") }.map { String($0.dropFirst(name.utf8.count + 2)) }
  }
  /// The messages in the body.
  var messages: [[UInt8]] { body.split(separator: 0x0A).map { LineFraming.bytes(ofHex: $0) } }
}

extension ClientCall {
  func say(_ bytes: [UInt8]) -> Outcome { bytes.withUnsafeBytes { send($0) } }

  /// Receives the next message. nil: no message follows.
  func next() -> [UInt8]? {
    guard let message = receive().1 else { return nil }
    return withExtendedLifetime(message) { [UInt8](message.view) }
  }
}

extension Peer {
  /// Reads a line, without its CR and LF. nil: the connection has ended.
  func readLine() -> String? {
    var line: [UInt8] = []
    while let byte = read(1) {
      if byte[0] == 0x0A {
        return String(decoding: line.last == 0x0D ? line.dropLast() : line[...], as: UTF8.self)
      }
      line += byte
    }
    return nil
  }

  /// Reads the head of a request.
  func readHead() -> Request1? {
    var lines: [String] = []
    while let line = readLine() {
      if line.isEmpty { return Request1(lines: lines) }
      lines.append(line)
    }
    return nil
  }

  /// Reads a chunk and the line end after it. The last chunk is empty.
  func readChunk() -> [UInt8]? {
    guard let line = readLine(), let size = Int(line, radix: 16), let chunk = read(size), readLine() == ""
    else {
      return nil
    }
    return chunk
  }

  /// Reads a request with its body. nil: the client has closed the connection.
  func readRequest() -> Request1? {
    guard var request = readHead() else { return nil }
    if let length = request.value("content-length") {
      guard let body = read(Int(length)!) else { return nil }
      request.body = body
    } else if request.value("transfer-encoding") == "chunked" {
      while let chunk = readChunk() {
        if chunk.isEmpty { return request }
        request.body += chunk
      }
      return nil
    }
    return request
  }

  static let okLine = LineFraming.line(Status(.ok))

  /// Sends an answer that has a content-length, the messages, and the status OK.
  func answer(_ messages: [[UInt8]], _ fields: String = "") {
    let body = messages.flatMap { LineFraming.line($0) } + Peer.okLine
    send(Array("HTTP/1.1 200 OK\r\n\(fields)Content-Length: \(body.count)\r\n\r\n".utf8) + body)
  }

  func answerHead(_ fields: String = "Transfer-Encoding: chunked\r\n") {
    send("HTTP/1.1 200 OK\r\n\(fields)\r\n")
  }

  func sendChunk(_ bytes: [UInt8]) {
    send(Array("\(String(bytes.count, radix: 16))\r\n".utf8) + bytes + Array("\r\n".utf8))
  }

  /// Sends the status OK as a chunk, and then the last chunk.
  func endAnswer() {
    sendChunk(Peer.okLine)
    send("0\r\n\r\n")
  }

  /// A server that answers each request with the messages of the request.
  static let echo1: RawServer.Script = { peer in
    while let request = peer.readRequest() { peer.answer(request.messages) }
  }

  /// Reads until the client closes the connection.
  func waitForClose() { while read(1) != nil {} }
}
