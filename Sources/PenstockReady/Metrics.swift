import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockClient

/// Metrics: counters and histograms by method, target and status code, and counters by peer. Any number of
/// interceptors may share one object. A reader takes a reference to the arrays and then unlocks the lock. If a
/// count changes while it reads, only the changed part of the arrays is copied.
public final class Metrics: @unchecked Sendable {
  public struct Options {
    /// The upper bounds of the histogram's buckets, in nanoseconds, increasing.
    public var buckets: [UInt64] = [5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000].map {
      $0 * 1_000_000
    }
    public var maxMethods = 256
    public var maxPeers = 256

    public init() {}
  }

  /// The calls of one method that have ended with one status code.
  struct Ended {
    let code: StatusCode
    var count: UInt64 = 0
    var nanoseconds: UInt64 = 0
    /// One bucket for each bound in the options, and a last one for the calls that took longer.
    var buckets: [UInt64]
  }

  struct Method {
    /// The path of the method; nil: this entry counts all methods beyond the first `maxMethods`.
    let path: ByteBuffer?
    /// The target of the channel; nil for that entry.
    let target: ByteBuffer?
    let kind: CallKind
    var started: UInt64 = 0
    var ended: UInt64 = 0
    var sentMessages: UInt64 = 0
    var sentBytes: UInt64 = 0
    var receivedMessages: UInt64 = 0
    var receivedBytes: UInt64 = 0
    var codes: [Ended] = []
  }

  /// One server of one target.
  struct Peer {
    /// Both are nil in the entry that counts all peers beyond the first `maxPeers`.
    let target: ByteBuffer?
    let address: ByteBuffer?
    var codes: [(code: StatusCode, count: UInt64)] = []
    var opened: UInt64 = 0
    var lost: UInt64 = 0
    var failed: UInt64 = 0

    mutating func count(_ code: StatusCode) {
      if let index = codes.firstIndex(where: { $0.code == code }) {
        codes[index].count += 1
      } else {
        codes.append((code, 1))
      }
    }
  }

  let options: Options
  public let generation = Process.generation
  private let lock = Lock()
  private var methods: [Method] = []
  private var peers: [Peer] = []

  public init(_ options: Options) { self.options = options }

  /// Calls `body` with the counts. The reference to the arrays is released while the lock is held: so the
  /// next change finds it gone and need not copy the arrays.
  func read<Result>(_ body: ([Method], [Peer]) -> Result) -> Result {
    var (lent, peers) = lock.withLock { (methods, self.peers) }
    let result = body(lent, peers)
    lock.lock()
    withExtendedLifetime((lent, peers)) {}
    lent = []
    peers = []
    lock.unlock()
    return result
  }

  /// Counts an event of a connection of `target` to `address`.
  public func count(_ kind: ConnectionNews.Kind, _ target: ByteView, _ address: ByteView) {
    lock.lock()
    defer { lock.unlock() }
    switch kind {
    case .ready: peers[peer(target, address)].opened += 1
    case .lost: peers[peer(target, address)].lost += 1
    case .backoff: peers[peer(target, address)].failed += 1
    case .resolving, .unresolved, .connecting, .secured, .draining, .silent, .ignored, .healthy, .unhealthy,
      .resolved, .idle, .unreachable, .policy, .retry, .throttled, .ejected, .restored, .slowCallback,
      .tlsReloaded, .tlsKept:
      break
    }
  }

  private func peer(_ target: ByteView, _ address: ByteView) -> Int {
    for index in 0..<peers.count {
      guard let known = peers[index].target, let at = peers[index].address else { continue }
      if bytesEqual(at.view, address), bytesEqual(known.view, target) { return index }
    }
    if peers.count < options.maxPeers, let name = ByteBuffer(copying: target),
      let copy = ByteBuffer(copying: address)
    {
      peers.append(Peer(target: name, address: copy))
    } else if let index = peers.firstIndex(where: { $0.address == nil }) {
      return index
    } else {
      peers.append(Peer(target: nil, address: nil))
    }
    return peers.count - 1
  }

  /// Counts the start of a call, and returns the index of its method.
  fileprivate func begin(_ path: ByteView, _ kind: CallKind, _ target: ByteView) -> Int {
    lock.lock()
    defer { lock.unlock() }
    let method = index(path, kind, target)
    methods[method].started += 1
    return method
  }

  private func index(_ path: ByteView, _ kind: CallKind, _ target: ByteView) -> Int {
    for method in 0..<methods.count where methods[method].kind == kind {
      guard let known = methods[method].path, let channel = methods[method].target else { continue }
      if bytesEqual(known.view, path), bytesEqual(channel.view, target) { return method }
    }
    let name = methods.count < options.maxMethods ? ByteBuffer(copying: target) : nil
    let copy = name == nil ? nil : ByteBuffer(copying: path)
    if copy == nil, let method = methods.firstIndex(where: { $0.path == nil && $0.kind == kind }) {
      return method
    }
    methods.append(Method(path: copy, target: name, kind: kind))
    return methods.count - 1
  }

  fileprivate func end(_ method: Int, _ code: StatusCode, _ nanoseconds: UInt64, _ call: Call) {
    let bucket = options.buckets.firstIndex { nanoseconds <= $0 } ?? options.buckets.count
    lock.lock()
    defer { lock.unlock() }
    methods[method].ended += 1
    methods[method].sentMessages += call.measures.sent.messages.value
    methods[method].sentBytes += call.measures.sent.bytes.value
    methods[method].receivedMessages += call.measures.received.messages.value
    methods[method].receivedBytes += call.measures.received.bytes.value
    let target = call.origin.target
    let facts = call.connection
    let address = facts?.peer.view ?? ("none" as StaticString).bytes
    peers[peer(ByteView(rebasing: target.view.dropLast()), address)].count(code)
    withExtendedLifetime((target, facts)) {}
    let known = methods[method].codes.firstIndex { $0.code == code }
    if known == nil {
      methods[method].codes.append(
        Ended(code: code, buckets: [UInt64](repeating: 0, count: options.buckets.count + 1)))
    }
    let index = known ?? methods[method].codes.count - 1
    methods[method].codes[index].count += 1
    methods[method].codes[index].nanoseconds += nanoseconds
    methods[method].codes[index].buckets[bucket] += 1
  }
}

/// The object behind the `user_data` of an interceptor that counts calls in a `Metrics` object.
public final class MetricsInterceptor: ReadyInterceptor {
  private final class Timed {
    let metrics: Metrics
    let method: Int
    let startedAt: UInt64
    var isEnded = false

    init(_ metrics: Metrics, _ hop: Hop) {
      self.metrics = metrics
      startedAt = hop.platform.clock()
      let request = hop.call.request
      let target = hop.call.origin.target
      method = metrics.begin(
        request.pathView, request.kind, ByteView(rebasing: target.view.dropLast()))
      withExtendedLifetime(target) {}
    }

    func end(_ code: StatusCode, _ hop: Hop) {
      guard !isEnded else { return }
      isEnded = true
      metrics.end(method, code, hop.platform.clock() - startedAt, hop.call)
    }
  }

  public let metrics: Metrics

  /// `hear`: passes an event of a channel to `Metrics.count` (the ABI knows its form).
  public init(_ metrics: Metrics, hear: ConnectionCallback) {
    self.metrics = metrics
    var callbacks = Registration.Callbacks()
    callbacks.create = { handle, userData, out in
      let (hop, this) = behind(handle, userData, MetricsInterceptor.self)
      return keep(Timed(this.metrics, hop), out)
    }
    let end: HopCallback = { handle, state in
      let (hop, timed) = behind(handle, state, Timed.self)
      timed.end(hop.status?.code ?? .unknown, hop)
      return next
    }
    callbacks.onStatus = end
    callbacks.onCancel = end
    callbacks.destroy = { handle, state in
      let (hop, timed) = behind(handle, state, Timed.self)
      timed.end(.cancelled, hop)
      forget(state, Timed.self)
    }
    callbacks.onConnection = hear
    super.init("metrics", callbacks)
  }
}
