import PenstockWire

/// One connection of the server as its calls know it, whichever version of HTTP it speaks: `Session` is HTTP/2,
/// `Session1` HTTP/1.1.
class ServerConnection: Source {
  final let loop: Loop
  final let link: Link
  final let options: Options
  final let number: Int
  final let pool: CallPool
  /// The header list that a call builds before it calls `respond` or `sendTrailers`.
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

  /// The version of HTTP, as `--print-requests` tells it.
  var version: StaticString { "2" }
  var isHTTP2: Bool { true }

  /// The call has taken `count` bytes of its input: the client may send as many more.
  func consumed(_ call: Call, _ count: Int) {}
  /// Sends `fields` as the headers of the answer. Without a body they are the whole answer.
  func respond(_ call: Call, hasBody: Bool) {}
  /// The call has output again, after `Call.provide` gave nothing.
  func resume(_ call: Call) {}
  /// Sends `fields` as trailers.
  func sendTrailers(_ call: Call) {}
  /// Breaks the answer off, because it can't be finished.
  func abort(_ call: Call) {}

  final func release(_ call: Call) {
    if options.printsRequests { call.report() }
    loop.disarm(call)
    call.reset()
    pool.give(call)
  }
}

/// Call objects that can be used again, with the memory that their buffers have.
final class CallPool {
  private var free: [Call] = []
  private static let limit = 1024

  func take() -> Call { free.popLast() ?? Call() }

  func give(_ call: Call) {
    if free.count < CallPool.limit { free.append(call) }
  }
}
