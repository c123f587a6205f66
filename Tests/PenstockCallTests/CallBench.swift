import PenstockWire
import Testing

@testable import PenstockCall
@testable import PenstockLaws

/// A call between fake layers. Its hops run closures of the test, and a log notes what happens.
final class CallBench {
  final class Hook {
    let name: String
    unowned let bench: CallBench
    var on: [EventKind: (Hop) -> Int32] = [:]

    init(_ name: String, _ bench: CallBench) {
      self.name = name
      self.bench = bench
    }

    static func run(_ state: UnsafeMutableRawPointer?, _ handle: OpaquePointer?, _ kind: EventKind) -> Int32 {
      let hook = Unmanaged<Hook>.fromOpaque(state!).takeUnretainedValue()
      let hop = Hop.from(handle!)
      hook.bench.log.append("\(hook.name) \(kind.word)" + (hop.signalCount > 0 ? " \(hop.signalCount)" : ""))
      return hook.on[kind]?(hop) ?? 0
    }
  }

  let loop: FakeLoop
  private let trace: (any CallTrace)?
  let below = FakeBelow()
  let above = FakeAbove()
  var hooks: [Hook] = []
  var log: [String] = []
  var status: Status?
  private(set) var call: Call!

  init(
    _ kind: CallKind = .bidi, hops: Int = 1, maxSendBytes: Int? = nil, replayBytes: [Int] = [],
    maxRestarts: Int = 1, headersWait: UInt32 = Registration.defaultHeadersWait, perAttempt: [Int] = [],
    loop: FakeLoop = FakeLoop(),
    executors: ((any Executor)?, (any Executor)?)? = nil,
    signals: Bool = true, trace: (any CallTrace)? = nil
  ) {
    self.trace = trace
    self.loop = loop
    for index in 0..<hops { hooks.append(Hook("\(index)", self)) }
    var callbacks = Registration.Callbacks()
    callbacks.onStart = { Hook.run($1, $0, .start) }
    callbacks.onSend = { Hook.run($1, $0, .send) }
    callbacks.onHalfClose = { Hook.run($1, $0, .halfClose) }
    callbacks.onHeaders = { Hook.run($1, $0, .headers) }
    callbacks.onReceive = { Hook.run($1, $0, .receive) }
    callbacks.onStatus = { Hook.run($1, $0, .status) }
    callbacks.onCancel = { Hook.run($1, $0, .cancel) }
    if signals {
      callbacks.onDemand = { Hook.run($1, $0, .demand) }
      callbacks.onSent = { Hook.run($1, $0, .sent) }
    }
    callbacks.destroy = { _ = Hook.run($1, $0, .destroy) }
    let registrations = hooks.enumerated().map { index, hook in
      Registration(
        id: UInt64(index + 1), name: buffer("hop\(index)\0"), filter: MethodFilter(), kinds: 0,
        isPerAttempt: perAttempt.contains(index), holdBytes: 0,
        userData: UserData(Unmanaged.passUnretained(hook).toOpaque(), nil), callbacks: callbacks,
        replayBytes: index < replayBytes.count
          ? replayBytes[index] : index == 0 && executors != nil ? 100 : 0,
        maxRestarts: maxRestarts, headersWait: headersWait, outboundExecutor: index == 0 ? executors?.0 : nil,
        inboundExecutor: index == 0 ? executors?.1 : nil)
    }
    begin(kind, hops == 0 ? nil : Chain(registrations), maxSendBytes)
    below.onStart = { [unowned self] _ in log.append("server start") }
    below.onSend = { [unowned self] in log.append("server message \($0.count)") }
    below.onHalfClose = { [unowned self] in log.append("server half-close") }
    below.onPull = { [unowned self] in log.append("pull") }
    below.onReset = { [unowned self] in log.append("reset") }
    above.onHeaders = { [unowned self] _ in log.append("caller headers") }
    above.onMessage = { [unowned self] in log.append("caller message \($0.count)") }
    above.onSent = { [unowned self] in log.append("caller sent \($0)") }
    above.onDiscard = { [unowned self] in log.append("discard") }
    above.onStatus = { [unowned self] in
      log.append("caller status \($0.code.rawValue)")
      status = $0
    }
  }

  /// Makes a call between the fake layers of this bench; a test may make several, one after the other.
  func begin(_ kind: CallKind, _ chain: Chain?, _ maxSendBytes: Int? = nil) {
    let request = Request(
      kind: kind, path: ("/a/b" as StaticString).bytes, metadata: Metadata(), deadline: nil)!
    if let maxSendBytes { request.settings.maxSendBytes = maxSendBytes }
    call = Call(
      id: 1, request: request, chain: chain,
      origin: CallOrigin(target: buffer("t\0"), defaultAuthority: buffer("a\0"), loop: loop),
      attachment: loop, trace: trace)
    call.attach(below: below)
    call.attach(above: above)
  }

  func perform(_ input: Call.Input) { call.perform(input) }

  /// The lines that were logged since the last `take`.
  func take() -> [String] {
    defer { log = [] }
    return log
  }

  func open(_ demand: Int = 0) {
    perform(.open(demand: demand, message: nil))
    log = []
  }

  static func message(_ size: Int) -> Message { buffer(String(repeating: "m", count: size)) }
}
