import PenstockWire
import Synchronization

/// The statistics of a call: times in monotonic nanoseconds, counts, and bytes. A time is 0 until its moment
/// has come.
public struct CallStatistics {
  public var createdAt: UInt64 = 0
  public var firstByteSentAt: UInt64 = 0
  public var headersAt: UInt64 = 0
  public var firstMessageAt: UInt64 = 0
  public var endedAt: UInt64 = 0
  /// How many attempts were made: more than one if the call was sent again.
  public var attempts: UInt64 = 0
  public var sent = Traffic()
  public var received = Traffic()
  /// The connection of the last attempt that had a connection.
  public var connection: ConnectionFacts?

  public struct Traffic {
    public var messages: UInt64 = 0
    /// The bytes of the messages before compression.
    public var bytes: UInt64 = 0
    /// The bytes of the messages as they were sent or received: compressed, if they were compressed.
    public var compressedBytes: UInt64 = 0
    /// The bytes of the bodies on the wire, which include the 5-byte prefix of each message.
    public var wireBytes: UInt64 = 0
  }
}

/// A number that only the driving thread changes, and that any thread may read.
public struct Measure: ~Copyable {
  private let number = Atomic<UInt64>(0)

  public var value: UInt64 { number.load(ordering: .relaxed) }
  public func set(_ value: UInt64) { number.store(value, ordering: .relaxed) }
  public func add(_ n: Int) { set(value &+ UInt64(clamping: n)) }
  /// Sets the number, unless it is set already (is not 0).
  public func setOnce(_ value: @autoclosure () -> UInt64) { if self.value == 0 { set(value()) } }
}

/// The statistics of a running call. Each number is right by itself, but a reader on another thread may see
/// one of them newer than another.
public struct Measures: ~Copyable {
  public let createdAt = Measure()
  public let firstByteSentAt = Measure()
  public let headersAt = Measure()
  public let firstMessageAt = Measure()
  public let endedAt = Measure()
  public let attempts = Measure()
  public let sent = TrafficMeasures()
  public let received = TrafficMeasures()

  public struct TrafficMeasures: ~Copyable {
    public let messages = Measure()
    public let bytes = Measure()
    public let compressedBytes = Measure()
    public let wireBytes = Measure()

    /// Adds the bytes of a message, compressed or not, and those that it takes on the wire.
    public func add(bytes size: Int, wireBytes wireSize: Int) {
      wireBytes.add(wireSize)
      compressedBytes.add(size)
    }

    var snapshot: CallStatistics.Traffic {
      CallStatistics.Traffic(
        messages: messages.value, bytes: bytes.value, compressedBytes: compressedBytes.value,
        wireBytes: wireBytes.value)
    }
  }
}

/// Counts successes and failures of the attempts on connections to one address. Only on the driving thread.
public final class AttemptTally {
  public var succeeded = 0
  public var failed = 0

  public init() {}

  public func count(_ isOK: Bool) {
    if isOK { succeeded += 1 } else { failed += 1 }
  }
}

/// The known facts about the connection of a call. Calls and their replies keep this object; only the measures and
/// `tally` ever change.
public final class ConnectionFacts {
  /// The peer's address, such as "127.0.0.1:50051".
  public let peer: ByteBuffer
  public let local: ByteBuffer?
  /// The protocol of the calls on the connection.
  public let rpc: RPCProtocol
  public let isHTTP1: Bool
  /// The version of HTTP, "2" or "1.1".
  public var http: StaticString { isHTTP1 ? "1.1" : "2" }
  /// The known facts about the connection's TLS; nil: cleartext.
  public let security: SecurityFacts?
  /// When the last byte came from the peer, in monotonic nanoseconds.
  public let heardAt = Measure()
  /// When the connection began, in monotonic nanoseconds.
  public let openedAt = Measure()
  /// How many messages the calls on the connection have sent and received.
  public let sentMessages = Measure()
  public let receivedMessages = Measure()
  /// Counts how the attempts on this connection have ended; nil: nobody wants the counts. Only on the driving
  /// thread.
  public var tally: AttemptTally?

  public init(
    peer: ByteBuffer, local: ByteBuffer?, security: SecurityFacts?, rpc: RPCProtocol = .grpc,
    isHTTP1: Bool = false
  ) {
    self.peer = peer
    self.local = local
    self.rpc = rpc
    self.isHTTP1 = isHTTP1
    self.security = security
  }
}

/// The known facts about the TLS of a connection.
open class SecurityFacts {
  /// The version, the cipher and the ALPN protocol, such as "TLSv1.3", "TLS_AES_256_GCM_SHA384" and "h2".
  public final let version: ByteBuffer
  public final let cipher: ByteBuffer
  public final let alpn: ByteBuffer
  /// Whether the handshake has resumed the session of an earlier connection.
  public final let isResumed: Bool

  public init(version: ByteBuffer, cipher: ByteBuffer, alpn: ByteBuffer, isResumed: Bool = false) {
    self.version = version
    self.cipher = cipher
    self.alpn = alpn
    self.isResumed = isResumed
  }

  /// How many certificates the peer has shown.
  open var certificateCount: Int { mustOverride(0) }
  /// The peer's certificates in PEM form, its own first. Any thread. nil: no memory.
  open func certificates() -> ByteBuffer? { mustOverride(nil) }
}

extension Call {
  /// The call's statistics so far. Any thread.
  public var stats: CallStatistics { stats(with: connection) }

  /// The call's statistics at its end. Taken once, on the driving thread.
  @inline(__always)
  public var lastStats: CallStatistics { stats(with: lastConnection()) }

  @inline(__always)
  private func stats(with connection: consuming ConnectionFacts?) -> CallStatistics {
    CallStatistics(
      createdAt: measures.createdAt.value, firstByteSentAt: measures.firstByteSentAt.value,
      headersAt: measures.headersAt.value, firstMessageAt: measures.firstMessageAt.value,
      endedAt: measures.endedAt.value, attempts: measures.attempts.value, sent: measures.sent.snapshot,
      received: measures.received.snapshot, connection: connection)
  }

  /// The connection of the present or last attempt. Any thread may read it; only the driving thread sets it.
  public var connection: ConnectionFacts? {
    get {
      connectionFacts.load(ordering: .acquiring).map {
        Unmanaged<ConnectionFacts>.fromOpaque($0).takeUnretainedValue()
      }
    }
    set {
      if let old = connectionFacts.load(ordering: .relaxed) { keepPast(.fromOpaque(old)) }
      connectionFacts.store(
        newValue.map { Unmanaged.passRetained($0).toOpaque() }, ordering: .releasing)
    }
  }

  private func keepPast(_ old: Unmanaged<ConnectionFacts>) { pastConnections.append(old.takeRetainedValue()) }

  /// The connection at the call's end. Without `row` the call has no hops through which another thread could
  /// reach it, so it hands over its own reference and counts no new one.
  @inline(__always)
  private func lastConnection() -> ConnectionFacts? {
    guard row == nil else { return connection }
    let facts = connectionFacts.load(ordering: .relaxed)
    connectionFacts.store(nil, ordering: .relaxed)
    return facts.map { Unmanaged<ConnectionFacts>.fromOpaque($0).takeRetainedValue() }
  }
}
