import PenstockWire
import Synchronization

/// The measures of a call: times in monotonic nanoseconds, counts, and bytes. A time is 0 until its moment
/// has come.
public struct CallStatistics {
  public var createdAt: UInt64 = 0
  public var firstByteSentAt: UInt64 = 0
  public var headersAt: UInt64 = 0
  public var firstMessageAt: UInt64 = 0
  public var endedAt: UInt64 = 0
  /// How many times start has left for the transport: more than once if the call has begun again.
  public var attempts: UInt64 = 0
  public var sent = Traffic()
  public var received = Traffic()
  /// The connection of the last attempt that had one.
  public var connection: ConnectionFacts?

  public struct Traffic {
    public var messages: UInt64 = 0
    /// Bytes of messages without compression.
    public var bytes: UInt64 = 0
    /// Bytes of messages as they travel: after compression, if a message is compressed.
    public var compressedBytes: UInt64 = 0
    /// Bytes of bodies on the wire: with the 5-byte prefix of each message.
    public var wireBytes: UInt64 = 0
  }
}

/// A number that the driving thread changes and any thread reads.
public struct Measure: ~Copyable {
  private let number = Atomic<UInt64>(0)

  public var value: UInt64 { number.load(ordering: .relaxed) }
  public func set(_ value: UInt64) { number.store(value, ordering: .relaxed) }
  public func add(_ n: Int) { set(value &+ UInt64(clamping: n)) }
  /// Sets the number, unless it was set before.
  public func setOnce(_ value: @autoclosure () -> UInt64) { if self.value == 0 { set(value()) } }
}

/// The measures of a running call. Each number is right by itself, but a reader on another thread may see one number
/// newer than another.
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

    var snapshot: CallStatistics.Traffic {
      CallStatistics.Traffic(
        messages: messages.value, bytes: bytes.value, compressedBytes: compressedBytes.value,
        wireBytes: wireBytes.value)
    }
  }
}

/// Counts how the attempts on the connections to one address have ended. The driving thread only.
public final class AttemptTally {
  public var succeeded = 0
  public var failed = 0

  public init() {}
}

/// The facts of the connection that a call runs on. The calls and their replies keep this object; only
/// `heardAt` and `tally` ever change.
public final class ConnectionFacts {
  /// The peer's address, such as "127.0.0.1:50051".
  public let peer: ByteBuffer
  public let local: ByteBuffer?
  /// The facts of TLS; nil: cleartext.
  public let security: SecurityFacts?
  /// When a byte last came from the peer.
  public let heardAt = Measure()
  /// The tally that counts the attempts on this connection; nil: they are not counted. The driving thread
  /// only.
  public var tally: AttemptTally?

  public init(peer: ByteBuffer, local: ByteBuffer?, security: SecurityFacts?) {
    self.peer = peer
    self.local = local
    self.security = security
  }
}

/// The facts of TLS about a connection.
open class SecurityFacts {
  /// The version, the cipher and the ALPN protocol, such as "TLSv1.3", "TLS_AES_256_GCM_SHA384" and "h2".
  public final let version: ByteBuffer
  public final let cipher: ByteBuffer
  public final let alpn: ByteBuffer

  public init(version: ByteBuffer, cipher: ByteBuffer, alpn: ByteBuffer) {
    self.version = version
    self.cipher = cipher
    self.alpn = alpn
  }

  /// How many certificates the peer has shown.
  open var certificateCount: Int { 0 }
  /// The certificates in PEM form, the peer's own first. Any thread. nil: no memory.
  open func certificates() -> ByteBuffer? { nil }
}

extension Call {
  /// The measures of the call so far. Any thread.
  public var stats: CallStatistics { stats(with: connection) }

  /// The measures at the end of the call, taken on the driving thread, once.
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

  /// The connection of the call: any thread reads it, the driving thread sets it.
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

  @inline(never) @_optimize(size)
  private func keepPast(_ old: Unmanaged<ConnectionFacts>) { pastConnections.append(old.takeRetainedValue()) }

  /// The connection at the end of the call. If there is no row, no other thread can reach the call through a hop, so
  /// the call hands over its own reference and counts no new one.
  @inline(__always)
  private func lastConnection() -> ConnectionFacts? {
    guard row == nil else { return connection }
    let facts = connectionFacts.load(ordering: .relaxed)
    connectionFacts.store(nil, ordering: .relaxed)
    return facts.map { Unmanaged<ConnectionFacts>.fromOpaque($0).takeRetainedValue() }
  }
}
