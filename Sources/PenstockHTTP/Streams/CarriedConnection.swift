import CPenstockSystem
import PenstockCall
import PenstockLink
import PenstockLoop
import PenstockWire

/// HTTP without a socket: one connection, of either version of HTTP, whose bytes the host program carries. The host has a
/// socket and a loop of its own, or none at all: bytes in, bytes out, next timer.
///
/// ```
/// bytes from the peer --receive, receiveEnd--> |            | --output, consumeOutput--> bytes for the peer
/// the host's clock    --run(at:)-------------> | connection | --nextTimer--> when to run at the latest
/// owners of streams   --newStream, consume---> |            | --streamChanged, connectionEnded--> owners
/// ```
///
/// The host calls `run` after each of its calls that may have changed something, and when `nextTimer` is due. `run` calls
/// the owners; so do the functions of `connection` that open a stream or end the connection, and the end of this object.
/// One thread at a time may use the object. It has no descriptor and no thread, and never waits.
public final class CarriedConnection {
  /// The connection, for `newStream`, `slots`, `drain` and `closeGracefully`.
  public let connection: TransportConnection
  private let runtime: Runtime
  private let carrier: Carrier

  /// The most turns of the loop in one `run`.
  private static let turns = 16

  /// Makes a connection. The peer has agreed to `version`. `now`: the host's clock in nanoseconds, from any start.
  /// `owner` is told of the connection, and not retained for longer than it lives. nil: no memory.
  public static func make(
    _ version: HTTPVersion, to peer: ByteBuffer, _ settings: ConnectionSettings, _ rpc: RPCProtocol,
    _ owner: any ConnectionOwner, at now: UInt64
  ) -> CarriedConnection? {
    let carrier = Carrier(at: now)
    var options = Runtime.Options()
    options.mode = .host
    guard case .made(let runtime) = Runtime.make(options, ClockMark(), carrier) else { return nil }
    let link = Link(carrier.socket, copies: false, runtime)
    let work = TurnWork(runtime)
    let made: TransportConnection? =
      switch version {
      case .http2: HTTP2Connection.make(link, peer, runtime, work, settings, rpc, owner)
      case .http1: HTTP1Single.make(link, peer, runtime, work, settings, rpc, owner)
      }
    guard let made, runtime.watch(carrier.socket.descriptor, Carrier.firstEvents, made) else {
      _ = runtime.shutdown(timeoutMilliseconds: 0)
      return nil
    }
    made.begin()
    return CarriedConnection(made, runtime, carrier)
  }

  private init(_ connection: TransportConnection, _ runtime: Runtime, _ carrier: Carrier) {
    self.connection = connection
    self.runtime = runtime
    self.carrier = carrier
  }

  deinit {
    connection.closeGracefully()
    _ = runtime.shutdown(timeoutMilliseconds: 0)
  }

  // MARK: Bytes in

  /// Adds bytes from the peer. They are copied. False: no memory; the connection should be given up.
  public func receive(_ bytes: ByteView) -> Bool { carrier.socket.arrived.append(bytes) }

  /// The number of bytes that the connection has not read yet, because a call does not take its answer. The host should
  /// stop reading from its peer while they are many.
  public var unread: Int { carrier.socket.arrived.count }

  /// The peer sends no more bytes.
  public func receiveEnd() { carrier.socket.hasEnded = true }

  // MARK: Bytes out

  /// The bytes for the peer, in order, at most `MemorySocket.room`. Valid until the next call of this object.
  public var output: ByteView { carrier.socket.sent.view }

  /// Removes the first `count` bytes of `output`, which the host has sent.
  public func consumeOutput(_ count: Int) { carrier.socket.sent.consume(min(max(count, 0), output.count)) }

  /// Whether the connection is over. The host sends the rest of `output`, and then closes its side.
  public var isClosed: Bool { carrier.socket.isClosed }

  // MARK: Time

  /// When `run` has to be called at the latest, by the host's clock; nil: at no time.
  public var nextTimer: UInt64? { runtime.nextTimer }

  /// Does everything that can be done now. True: there is more to do, and the host should call again soon; meanwhile it
  /// may do other work.
  public func run(at now: UInt64) -> Bool {
    carrier.time = max(carrier.time, now)
    for _ in 0..<CarriedConnection.turns {
      // In a forked child the loop stands still.
      if runtime.poll(timeoutMilliseconds: 0) == .closed { return false }
      if !carrier.poller.hasEvents, !runtime.hasLeftovers { return false }
    }
    return true
  }
}

/// The platform of the loop of a `CarriedConnection`: the host's clock, and a socket in memory.
private final class Carrier: Platform {
  var time: UInt64
  let socket: MemorySocket
  let poller: MemoryPoller
  static let firstEvents = CS_EPOLLIN

  init(at now: UInt64) {
    time = now
    socket = MemorySocket()
    poller = MemoryPoller(socket)
    super.init()
  }

  override func clock() -> UInt64 { time }
  override func makePoller(host: Bool) -> Poller { poller }
}
