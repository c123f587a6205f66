import PenstockWire

/// How often a request was sent again by its method's retry policy (gRFC A6). Other repetitions are not counted here.
public struct RetryCount: Equatable, Sendable {
  /// The number of attempts before the present one.
  public var previous: UInt8 = 0
  /// The number of them after which the server has not said when to try again.
  public var sincePushback: UInt8 = 0

  public init() {}
}

/// The wait of a call before its request is sent again by a retry policy.
struct RetryWait {
  /// In monotonic nanoseconds.
  let until: UInt64
  /// The status of the attempt before.
  let status: Status
}

/// How many bytes of messages the calls of a channel may keep for further attempts. Only on the driving thread.
public final class ReplayBudget {
  let bytesOfCall: Int
  public private(set) var left: Int

  public init(ofCall: Int = 1 << 20, ofAll: Int = 64 << 20) {
    bytesOfCall = ofCall
    left = ofAll
  }

  /// Takes room for a message. False: there is too little.
  func take(_ bytes: Int) -> Bool {
    if bytes > left { return false }
    left -= bytes
    return true
  }

  /// Takes room for the only message of a call.
  func takeWhole(_ bytes: Int) -> Bool { bytes <= bytesOfCall && take(bytes) }

  func giveBack(_ bytes: Int) { left += bytes }
}

/// The server's word on whether and when a failed request should be sent again: the field "grpc-retry-pushback-ms"
/// of the trailers (gRFC A6, "Pushback").
public enum Pushback: Equatable, Sendable {
  case none
  /// In nanoseconds.
  case after(UInt64)
  case never

  public static var name: ByteView { ("grpc-retry-pushback-ms" as StaticString).bytes }

  /// Reads the field among those of the trailers. A value that is no number of milliseconds, or a second value, means
  /// `never`.
  public init(_ fields: Metadata) {
    guard let index = fields.index(of: Pushback.name) else {
      self = .none
      return
    }
    let value = fields.value(at: index)
    var milliseconds: UInt64 = 0
    var isNumber = !value.isEmpty && fields.index(of: Pushback.name, occurrence: 1) == nil
    for byte in value {
      guard byte >= 0x30, byte <= 0x39, milliseconds <= UInt64(Int32.max) else {
        isNumber = false
        break
      }
      milliseconds = milliseconds * 10 + UInt64(byte - 0x30)
    }
    if milliseconds > UInt64(Int32.max) { isNumber = false }
    self = isNumber ? .after(milliseconds * 1_000_000) : .never
  }
}
