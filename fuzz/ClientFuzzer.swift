import CPenstock
import Glibc
import PenstockWire

@testable import PenstockTransport
@testable import PenstockLoop

// The whole client, through its C functions, against a server whose bytes come from the input: four calls at a time
// over a socket, in one thread, which also drives the client's loop. The fuzzer checks that each call ends once, with
// one reply, within a bounded number of turns after the server has gone.
//
// The input is a list of steps (`Server.step`) and not raw bytes. So a change that libFuzzer makes mostly gives another
// well-formed frame, and not a frame with a wrong length.

/// Reads values from the input. After its end all values are 0.
struct Input {
  private let bytes: ByteView
  private var at = 0

  init(_ bytes: ByteView) { self.bytes = bytes }

  var isEmpty: Bool { at >= bytes.count }

  mutating func byte() -> UInt8 {
    defer { at += 1 }
    return at < bytes.count ? bytes[at] : 0
  }

  mutating func number() -> UInt32 { (0..<4).reduce(0) { sum, _ in sum << 8 | UInt32(byte()) } }

  mutating func take(_ count: Int) -> [UInt8] {
    let part = [UInt8](bytes[min(at, bytes.count)..<min(at + count, bytes.count)])
    at += count
    return part
  }
}

/// A call of the client, with counts of its callbacks.
final class Played {
  var replies = 0
  var ends = 0
  var handle: OpaquePointer?

  static func of(_ pointer: UnsafeMutableRawPointer?) -> Played {
    Unmanaged<Played>.fromOpaque(pointer!).takeUnretainedValue()
  }

  func start(_ channel: OpaquePointer, _ kind: Int32, _ options: OpaquePointer?) {
    var table = penstock_call_callbacks()
    table.struct_size = MemoryLayout<penstock_call_callbacks>.size
    table.user_data = Unmanaged.passUnretained(self).toOpaque()
    table.finalizer = { Played.of($0).ends += 1 }
    table.on_headers = { _, headers, _ in
      var json: UnsafeMutablePointer<CChar>?
      if penstock_metadata_json(headers, &json) == PENSTOCK_OK { penstock_free(json) }
    }
    table.on_message = { call, _, _ in _ = penstock_call_demand(call, 1) }
    table.on_reply = { _, reply, played in
      Played.of(played).replies += 1
      precondition(penstock_reply_code(reply) >= 0 && penstock_reply_code(reply) <= 16)
      _ = penstock_reply_status_json(reply)
    }
    precondition(
      penstock_channel_call(channel, "/a.B/C", kind, options, &table, &handle, nil) == PENSTOCK_OK)
    _ = penstock_call_demand(handle, 1)
    send()
    if kind == PENSTOCK_KIND_UNARY || kind == PENSTOCK_KIND_SERVER_STREAM {
      _ = penstock_call_half_close(handle)
    }
  }

  func send() { _ = penstock_call_try_send(handle, "some request bytes", 18) }
}

/// The server: listens on a socket, and sends the frames that the input describes.
final class Server {
  let listener: CInt
  let name: String
  var socket: CInt = -1
  /// The TLS session between the frames and the socket; nil: cleartext.
  var seal: Seal?
  var out: [UInt8] = []
  /// Names and values of header fields. The first three are those of a usual answer.
  private static let fields: [(String, String)] = [
    (":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "0"), ("grpc-status", "5"),
    ("grpc-message", "a%20b%c3"), ("grpc-encoding", "gzip"), ("grpc-encoding", "br"), ("x", "y"),
    ("a-bin", "AAE,AQ"), ("b-bin", "!"), (":status", "103"), (":status", "503"), ("content-length", "7"),
    ("grpc-status-details-bin", "CAUSAW4aBwoDYS9iEgA"), ("te", "trailers"), ("X-Upper", "1"),
    ("content-type", "text/html"), ("grpc-retry-pushback-ms", "1"), (":path", "/"), ("connection", "close"),
    ("grpc-status", "17"), ("grpc-status", "x"), ("grpc-message", ""), (":status", "204"),
  ]

  init() {
    listener = Glibc.socket(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue), 0)
    name = "penstock-fuzz-\(getpid())"
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0[1...].copyBytes(from: name.utf8) }
    let size = socklen_t(MemoryLayout<sa_family_t>.size + 1 + name.utf8.count)
    withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        precondition(bind(listener, $0, size) == 0 && listen(listener, 16) == 0)
      }
    }
  }

  func accept() -> Bool {
    if socket >= 0 { return true }
    socket = Glibc.accept(listener, nil, nil)
    if socket >= 0 { _ = fcntl(socket, F_SETFL, O_NONBLOCK) }
    return socket >= 0
  }

  /// Reads all bytes that the client has sent, and discards them.
  func drain() {
    var place = [UInt8](repeating: 0, count: 16384)
    while socket >= 0 {
      let n = recv(socket, &place, place.count, 0)
      if n <= 0 { return }
      seal?.take(place[..<n])
    }
  }

  func flush() {
    let bytes = seal?.records(out) ?? out
    if !bytes.isEmpty { _ = Glibc.send(socket, bytes, bytes.count, Int32(MSG_NOSIGNAL)) }
    out.removeAll(keepingCapacity: true)
    drain()
  }

  func close() {
    seal = nil
    if socket >= 0 { _ = Glibc.close(socket) }
    socket = -1
    out.removeAll(keepingCapacity: true)
  }

  func frame(_ type: UInt8, _ flags: UInt8, _ stream: UInt32, _ payload: [UInt8]) {
    let count = payload.count
    out += [UInt8(count >> 16 & 255), UInt8(count >> 8 & 255), UInt8(count & 255), type, flags]
    out += big(stream) + payload
  }

  private func big(_ n: UInt32) -> [UInt8] {
    [UInt8(n >> 24), UInt8(n >> 16 & 255), UInt8(n >> 8 & 255), UInt8(n & 255)]
  }

  /// A header block. Each field is an index into HPACK's tables, or a literal that may go into the table; the input
  /// picks which.
  private func block(_ input: inout Input) -> [UInt8] {
    var block: [UInt8] = []
    for _ in 0..<Int(input.byte() % 8) {
      let pick = input.byte()
      if pick & 0x80 != 0 {
        block.append(pick)
        continue
      }
      let (name, value) = Server.fields[Int(pick & 31) % Server.fields.count]
      block.append(pick & 0x40)
      for text in [name, value] { block += [UInt8(text.utf8.count)] + Array(text.utf8) }
    }
    return block
  }

  private static func stream(_ byte: UInt8) -> UInt32 {
    byte & 0x80 != 0 ? UInt32(byte & 0x7f) : UInt32(byte & 3) * 2 + 1
  }

  /// Makes the next step of the server. False: the caller has to send the output now, and let the client's loop turn.
  func step(_ input: inout Input, _ calls: [Played]) -> Bool {
    let kind = input.byte()
    switch kind % 20 {
    case 0, 1:
      let stream = Server.stream(input.byte())
      frame(1, kind & 0x80 != 0 ? 4 : input.byte(), stream, block(&input))
    case 2: frame(1, 5, Server.stream(input.byte()), block(&input))
    case 3, 4:
      let stream = Server.stream(input.byte())
      let body = input.take(Int(input.byte()))
      frame(0, kind >> 7, stream, [kind >> 6 & 1] + big(UInt32(body.count)) + body)
    case 5: frame(0, input.byte(), Server.stream(input.byte()), input.take(Int(input.byte())))
    case 6: frame(3, 0, Server.stream(input.byte()), big(UInt32(input.byte() % 16)))
    case 7: frame(7, 0, 0, big(Server.stream(input.byte())) + big(UInt32(input.byte() % 16)) + input.take(5))
    case 8: frame(4, 0, 0, [0, input.byte() % 8] + big(input.number()))
    case 9: frame(6, input.byte() & 1, 0, [0, 1, 2, 3, 4, 5, 6, 7])
    case 10: frame(8, 0, Server.stream(input.byte()), big(input.number()))
    case 11: frame(9, input.byte(), Server.stream(input.byte()), block(&input))
    case 12: frame(input.byte(), input.byte(), Server.stream(input.byte()), input.take(Int(input.byte())))
    case 13: out += input.take(Int(input.byte()))
    case 14: frame(4, 1, 0, [])
    case 15: out.removeLast(min(out.count, Int(input.byte())))
    case 16: calls[Int(input.byte()) % calls.count].send()
    case 17: _ = penstock_call_half_close(calls[Int(input.byte()) % calls.count].handle)
    case 18:
      if kind & 0x80 != 0 { _ = penstock_call_cancel(calls[Int(input.byte()) % calls.count].handle, "x") }
    default: return false
    }
    return true
  }
}

final class Fixture {
  let server = Server()
  var runtime: OpaquePointer?
  var options: OpaquePointer?

  init() {
    precondition(penstock_runtime_new("{\"mode\": \"host\"}", &runtime, nil) == PENSTOCK_OK)
    let json =
      "{\"compression\": \"gzip\", \"trace\": true, \"metadata\": {\"a\": \"b\", \"c-bin\": \"AAE\"}}"
    precondition(penstock_call_options_new(json, &options, nil) == PENSTOCK_OK)
  }

  func turn() { _ = penstock_runtime_poll(runtime, 0) }
}

nonisolated(unsafe) let fixture = Fixture()

func fuzzClient(_ bytes: ByteView) { play(bytes, "false", sealed: false) }

/// Runs the client against a server that follows the input. `tls` is the value of the channel's option "tls"; with
/// `sealed` the server uses TLS.
func play(_ bytes: ByteView, _ tls: String, sealed: Bool) {
  var input = Input(bytes)
  let server = fixture.server
  let style = input.byte()
  var channel: OpaquePointer?
  let json =
    "{\"tls\": \(tls), \"max_receive_message_bytes\": 65536, \"initial_stream_window_bytes\": 65535}"
  precondition(
    penstock_channel_new_on(fixture.runtime, "unix-abstract:\(server.name)", json, &channel, nil)
      == PENSTOCK_OK)
  let calls = (0..<4).map { _ in Played() }
  for (kind, call) in calls.enumerated() {
    call.start(channel!, Int32(kind), style >> kind & 1 != 0 ? fixture.options : nil)
  }
  for _ in 0..<4 where !server.accept() { fixture.turn() }
  precondition(server.socket >= 0)
  if sealed { server.seal = Seal(&input, server, fixture.turn) }
  // The SETTINGS of the server, without which the client begins no stream.
  if style & 0x80 == 0 { server.frame(4, 0, 0, []) }
  server.flush()
  fixture.turn()
  fixture.turn()
  server.drain()
  while !input.isEmpty {
    if let seal = server.seal, seal.step(&input, server) { continue }
    if server.step(&input, calls) { continue }
    server.flush()
    fixture.turn()
  }
  server.flush()
  fixture.turn()
  // A call may cause another attempt to connect, which fails, too.
  var turns = 0
  while calls.contains(where: { $0.ends == 0 }) {
    server.close()
    _ = server.accept()
    server.close()
    fixture.turn()
    turns += 1
    precondition(turns < 200, "a call does not end")
  }
  _ = penstock_channel_close(channel)
  penstock_channel_release(channel)
  for _ in 0..<2 { fixture.turn() }
  while server.accept() { server.close() }
  for call in calls {
    precondition(call.replies == 1 && call.ends == 1)
    penstock_call_release(call.handle)
  }
}
