import PenstockWire

public enum Compression: Equatable, Sendable { case identity, gzip }

/// What may be assumed of a method that is called twice; the raw values are the ABI's.
public enum Idempotency: Int32, Sendable {
  case unknown = 0
  case idempotent = 1
  case noSideEffects = 2
}

/// What `start` carries beside its headers: how the call is to be made.
public struct CallSettings {
  public var maxReceiveBytes = 4 << 20
  public var maxSendBytes = Int(Int32.max)
  /// Header fields that only a secure connection may carry. Never changed, only replaced: options share it.
  public var credentials: Metadata?
  /// Of what is sent.
  public var compression = Compression.identity
  public var idempotency = Idempotency.unknown
  /// Carried; nothing waits for it yet.
  public var waitsForReady = false

  public init() {}
}
