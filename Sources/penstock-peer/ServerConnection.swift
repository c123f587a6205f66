import PenstockWire
import PenstockLink
import PenstockHTTP

/// One connection of the server, independent of the HTTP version. The subclass `Session` implements HTTP/2,
/// and `Session1` HTTP/1.1.
class ServerConnection: Source {
  final let loop: Loop
  final let link: Link
  final let options: Options
  final let number: Int
  final let pool: CallPool
  /// The header list that a call fills before it calls `respond` or `sendTrailers`.
  final let fields = FieldList()

  init(_ loop: Loop, _ link: Link, _ options: Options, _ pool: CallPool, _ number: Int) {
    self.loop = loop
    self.link = link
    self.options = options
    self.pool = pool
    self.number = number
    super.init()
    fd = link.fd
  }

  /// The HTTP version, for the output of `--print-requests`.
  var version: StaticString { mustOverride("") }
  var isHTTP2: Bool { mustOverride(true) }

  /// Called when the call has taken `count` bytes of its input. The client may then send as many bytes more.
  func consumed(_ call: Call, _ count: Int) { mustOverride(()) }
  /// Sends `fields` as the headers of the answer. Without a body, they are the whole answer.
  func respond(_ call: Call, hasBody: Bool) { mustOverride(()) }
  /// Called when the call has output again, after `Call.provide` has returned nothing.
  func resume(_ call: Call) { mustOverride(()) }
  /// Sends `fields` as the trailers. Does nothing by default: no protocol of HTTP/1.1 has trailers here.
  func sendTrailers(_ call: Call) {}
  /// Ends the stream in the middle of the answer, because the answer can't be completed.
  func abort(_ call: Call) { mustOverride(()) }

  final func release(_ call: Call) {
    if options.printsRequests { call.report() }
    loop.disarm(call)
    call.reset()
    pool.give(call)
  }
}

/// Call objects that can be reused. Their buffers keep their memory.
final class CallPool {
  private var free: [Call] = []
  private static let limit = 1024

  func take() -> Call { free.popLast() ?? Call() }

  func give(_ call: Call) {
    if free.count < CallPool.limit { free.append(call) }
  }
}
