import CPenstockSystem
import Glibc
import PenstockWire

@testable import PenstockLoop
@testable import PenstockNames

/// A world in memory for one host-driven runtime. It has a clock that advances only when the loop sleeps,
/// names, and servers behind simulated sockets. Nothing in it takes real time. Used by one thread.
open class Simulation: Platform {
  public typealias Server = (_ said: [UInt8], _ socket: SimulatedSocket) -> Void

  public private(set) var time: UInt64 = 1_000_000_000
  /// The servers by port. A port without a server refuses connections.
  public var servers: [UInt16: Server] = [:]
  /// The addresses of each host name.
  public var names: [String: [SocketAddress]] = [:]
  /// The time in nanoseconds that bytes take from one end of a connection to the other.
  public var delay: UInt64 = 0
  public private(set) var connects = 0
  private var events: [(at: UInt64, run: () -> Void)] = []
  private weak var poller: SimulatedPoller?
  /// The clients' ends of all connections, by their numbers.
  public private(set) var sockets: [Int32: SimulatedSocket] = [:]

  public override func clock() -> UInt64 { time }
  public override func coarseClock() -> UInt64 { time }
  /// The simulated world begins in 2001.
  public override func wallClock() -> UInt64 { 1_000_000_000_000_000_000 + time }

  /// The source of random numbers. By default each number is the middle of the range, so that jitter changes
  /// no delay.
  public var randoms: () -> UInt64 = { 1 << 63 }
  public override func random() -> UInt64 { randoms() }

  public override func makePoller(host: Bool) -> Poller {
    let poller = SimulatedPoller(self, host: host)
    self.poller = poller
    return poller
  }

  /// The events of a descriptor that the next poll tells. 0: none, or the descriptor is not watched.
  public func events(of descriptor: Int32) -> UInt32 { poller?.events(of: descriptor) ?? 0 }
  /// The events of a descriptor that the loop wants to be told; nil: it is not watched.
  public func interest(in descriptor: Int32) -> UInt32? { poller?.interest(in: descriptor) }

  public override func connect(to address: SocketAddress, _ settings: SocketSettings) -> Socket.Opened {
    connects += 1
    guard let server = servers[address.port] else { return .failed(ECONNREFUSED) }
    let socket = SimulatedSocket(Int32(1_000_000 + connects), self, server)
    sockets[socket.descriptor] = socket
    after(delay) { socket.isConnected = true }
    return .socket(socket, connecting: true)
  }

  public override func lookUp(
    _ host: ByteView, port: UInt16, services: ByteBuffer?, on runtime: Runtime,
    _ completion: any LookupCompletion
  ) -> Lookup? {
    guard let list = names[String(decoding: host, as: UTF8.self)] else {
      return super.lookUp(host, port: port, services: services, on: runtime, completion)
    }
    completion.lookedUp(.addresses(list))
    return nil
  }

  public func after(_ nanoseconds: UInt64, _ run: @escaping () -> Void) {
    let at = time + nanoseconds
    let place = events.firstIndex { $0.at > at } ?? events.count
    events.insert((at, run), at: place)
  }

  func readiness(_ descriptor: Int32) -> UInt32 { sockets[descriptor]?.readiness ?? 0 }

  /// Advances the clock to the next event, or by `nanoseconds` if there is no event within that time. Returns
  /// false in that case.
  public func goOn(atMost nanoseconds: UInt64) -> Bool {
    guard let first = events.first, first.at <= time + nanoseconds else {
      time += nanoseconds
      return false
    }
    events.removeFirst()
    time = max(time, first.at)
    first.run()
    return true
  }
}

/// The client's end of a connection in memory.
public final class SimulatedSocket: Socket {
  private let world: Simulation
  private let server: Simulation.Server
  private var arrived: [UInt8] = []
  var isConnected = false
  /// Whether the client has closed the socket.
  public private(set) var isClosed = false
  private var hasEnded = false
  /// Whether the connection is over in both directions, which every poll tells.
  private var hasHungUp = false
  /// The number of bytes that writes accept from now on.
  public var capacity = Int.max
  /// Whether writes fail from now on.
  public var writesFail = false
  /// The state of the server on this connection: whether it has received the client's preface, and the bytes
  /// of an incomplete frame.
  public var hasBegun = false
  public var rest: [UInt8] = []
  /// The number of messages that the server has answered.
  public var answered = 0
  /// The bytes that arrive at the moment of the next write, which fails; nil: writes succeed.
  public var lastWords: [UInt8]?
  /// The limit in nanoseconds for sent bytes without an acknowledgement; nil: the system's limit.
  public private(set) var mostUnacknowledged: UInt64?

  public init(_ descriptor: Int32, _ world: Simulation, _ server: @escaping Simulation.Server) {
    self.world = world
    self.server = server
    super.init(descriptor)
  }

  var readiness: UInt32 {
    if isClosed || !isConnected { return 0 }
    var bits = arrived.isEmpty && !hasEnded ? 0 : CS_EPOLLIN
    if capacity > 0 || writesFail { bits |= CS_EPOLLOUT }
    if hasEnded { bits |= CS_EPOLLRDHUP }
    if hasHungUp { bits |= CS_EPOLLRDHUP | CS_EPOLLHUP | CS_EPOLLERR }
    return bits
  }

  /// The number of bytes that have arrived, and that the client has not read.
  public var unread: Int { arrived.count }

  /// Sends bytes from the server. The client receives them after `delay`.
  public func answer(_ bytes: [UInt8]) { world.after(world.delay) { self.arrived += bytes } }
  public func end() { world.after(world.delay) { self.hasEnded = true } }
  /// Ends the connection in both directions. Without `ends` reads find no bytes instead of the end.
  public func hangUp(ends: Bool) {
    world.after(world.delay) {
      self.hasHungUp = true
      self.hasEnded = ends
    }
  }

  public override var connectError: Int32 { 0 }
  public override var localAddress: SocketAddress? { nil }
  public override func limitUnacknowledged(_ time: UInt64) { mostUnacknowledged = time }
  public override var roundTrip: UInt64 { 2 * world.delay }

  public override func receive(into place: UnsafeMutableRawBufferPointer) -> Moved {
    if arrived.isEmpty { return hasEnded ? .end : .wouldBlock }
    let count = min(place.count, arrived.count)
    place.copyBytes(from: arrived[..<count])
    arrived.removeFirst(count)
    return .bytes(count)
  }

  public override func receive(_ vectors: UnsafeMutablePointer<iovec>, _ count: Int) -> Moved {
    var total = 0
    for i in 0..<count where !arrived.isEmpty {
      let place = UnsafeMutableRawBufferPointer(start: vectors[i].iov_base, count: vectors[i].iov_len)
      if case .bytes(let n) = receive(into: place) { total += n }
    }
    return total > 0 ? .bytes(total) : hasEnded ? .end : .wouldBlock
  }

  public override func send(_ bytes: ByteView) -> Moved {
    if let lastWords {
      arrived += lastWords
      hasEnded = true
      return .failed(ECONNRESET)
    }
    if writesFail { return .failed(ECONNRESET) }
    let said = [UInt8](bytes.prefix(capacity))
    if said.isEmpty, !bytes.isEmpty { return .wouldBlock }
    if capacity != .max { capacity -= said.count }
    world.after(world.delay) { if !self.isClosed { self.server(said, self) } }
    return .bytes(said.count)
  }

  public override func send(_ queue: SendQueue) -> Moved {
    if lastWords != nil || writesFail || capacity == 0 { return send(ByteView(start: nil, count: 0)) }
    if queue.bytes.count == queue.count {
      let moved = send(queue.bytes.view)
      if case .bytes(let n) = moved { queue.consume(n) }
      return moved
    }
    let said = ByteBuffer()
    precondition(queue.move(queue.count, into: said) != nil)
    return send(said.view)
  }

  public override func shutdown() {}
  public override func close() { isClosed = true }
}

final class SimulatedPoller: Poller {
  private let world: Simulation
  private var watched: [Int32: (bits: UInt32, handler: any ReadyHandler)] = [:]
  private var found: [(handler: any ReadyHandler, bits: UInt32)] = []

  init(_ world: Simulation, host: Bool) {
    self.world = world
    super.init(host: host)
  }

  override func watch(_ fd: Int32, _ bits: UInt32, _ handler: any ReadyHandler) -> Bool {
    watched[fd] = (bits, handler)
    return true
  }

  override func rewatch(_ fd: Int32, _ bits: UInt32) { watched[fd]?.bits = bits }
  override func hand(_ fd: Int32, to handler: any ReadyHandler) { watched[fd]?.handler = handler }
  override func unwatch(_ fd: Int32) -> (any ReadyHandler)? { watched.removeValue(forKey: fd)?.handler }
  override func unwatchAny() -> (any ReadyHandler)? { watched.popFirst()?.value.handler }

  func interest(in fd: Int32) -> UInt32? { watched[fd]?.bits }

  /// An end of the connection in both directions is always told, as by epoll.
  func events(of fd: Int32) -> UInt32 {
    watched[fd].map { world.readiness(fd) & ($0.bits | CS_EPOLLHUP | CS_EPOLLERR) } ?? 0
  }

  private func look() -> Int32 {
    found = watched.sorted { $0.key < $1.key }.compactMap { fd, watch in
      let bits = events(of: fd)
      return bits == 0 ? nil : (watch.handler, bits)
    }
    return Int32(found.count)
  }

  /// Advances the simulated clock by the time for which the real poller would sleep.
  override func wait(milliseconds: Int32) -> Int32 {
    let end = world.time + UInt64(max(milliseconds, 0)) * 1_000_000
    while true {
      let count = look()
      if count > 0 || milliseconds == 0 { return count }
      if !world.goOn(atMost: end - world.time) { return look() }
    }
  }

  override func event(_ i: Int32) -> (handler: any ReadyHandler, bits: UInt32)? { found[Int(i)] }
}
