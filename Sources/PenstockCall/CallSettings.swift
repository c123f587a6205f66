import PenstockWire

public enum Compression: Equatable, Sendable { case identity, gzip }

/// What may be assumed of a method that is called twice; the raw values are the ABI's.
public enum Idempotency: Int32, Sendable {
  case unknown = 0
  case idempotent = 1
  case noSideEffects = 2
}

/// Who may listen on a channel; from the least to the most secure.
public enum Privacy: UInt8, Sendable {
  case cleartext = 0
  /// A unix socket without TLS: nothing leaves the machine.
  case local = 1
  case tls = 2
}

/// Of what kind the messages of a call are, and who asks: instead of the channel's words. Never changed, only replaced.
public final class RequestLabels {
  /// "application/grpc+json" and a NUL. nil: "application/grpc".
  public let contentType: ByteBuffer?
  /// The whole of it, and a NUL. nil: the channel's.
  public let userAgent: ByteBuffer?

  public init(contentType: ByteBuffer?, userAgent: ByteBuffer?) {
    self.contentType = contentType
    self.userAgent = userAgent
  }
}

/// What `start` carries beside its headers: how the call is to be made.
public struct CallSettings {
  public var maxReceiveBytes = 4 << 20
  public var maxSendBytes = Int(Int32.max)
  /// Header fields that only a secure connection may carry. Never changed, only replaced: options share it.
  public var credentials: Metadata?
  /// At least that: there is a secret among the metadata.
  public var privacy = Privacy.cleartext
  /// Of what is sent.
  public var compression = Compression.identity
  public var idempotency = Idempotency.unknown
  /// nil: the channel's.
  public var labels: RequestLabels?
  /// Carried; nothing waits for it yet.
  public var waitsForReady = false

  public init() {}
}
