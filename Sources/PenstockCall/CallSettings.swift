import PenstockWire

/// Which messages are sent compressed in a call that has a compression.
public enum CompressionUse: Equatable, Sendable {
  /// Those that compression makes smaller.
  case whereSmaller
  /// Those of this many bytes or more, whether or not they become smaller.
  case from(bytes: Int32)

  /// Whether a message of `count` bytes is sent as it is, whatever compression would make of it.
  public func skips(_ count: Int) -> Bool {
    switch self {
    case .whereSmaller: false
    case .from(let bytes): count < Int(bytes)
    }
  }

  /// Whether a message of `plain` bytes is sent as the `packed` bytes that compression has made of it.
  public func sends(_ packed: Int, of plain: Int) -> Bool {
    switch self {
    case .whereSmaller: packed < plain
    case .from(let bytes): plain >= Int(bytes)
    }
  }
}

/// Whether a second call of the method, with the same request, does no harm; the raw values are those of the
/// ABI.
public enum Idempotency: Int32, Sendable {
  case unknown = 0
  case idempotent = 1
  case noSideEffects = 2
}

/// Whether a request may be an HTTP GET, and whether it was one when it was sent. One byte tells both, because settings
/// are copied for each call.
public enum GETUse: UInt8, Sendable {
  case allowed
  case forbidden
  /// GET is allowed, and the request was sent as a GET.
  case sent
  /// GET is allowed, and the request was sent as a POST nevertheless.
  case passedOver
}

/// How private a channel is, from the least to the most secure.
public enum Privacy: UInt8, Sendable {
  case cleartext = 0
  /// A unix socket without TLS: no bytes leave the machine.
  case local = 1
  case tls = 2
}

/// The authority, content-type and user agent with which a call replaces the usual ones, each followed by a
/// NUL; nil: the usual one. The call's `EndpointWish` is here too, because few calls have one. The object is
/// never changed, only replaced.
public final class RequestLabels {
  public let authority: ByteBuffer?
  /// The content-type, such as "application/grpc+json"; nil: "application/grpc".
  public let contentType: ByteBuffer?
  /// The complete user agent.
  public let userAgent: ByteBuffer?
  public let wish: EndpointWish?
  /// Whether the request is no RPC, but a form that is posted.
  public let isForm: Bool

  /// The beginning of each `contentType`; the name of the messages' encoding follows.
  public static var contentTypeStart: StaticString { "application/grpc+" }

  /// The name of the messages' encoding, such as "json"; nil: the usual one, "proto".
  public var subtype: ByteView? {
    contentType.map {
      ByteView(rebasing: $0.view.dropLast().dropFirst(RequestLabels.contentTypeStart.utf8CodeUnitCount))
    }
  }

  /// The content-type for messages in the encoding `subtype`, followed by a NUL; nil: no memory.
  public static func contentType(_ subtype: ByteView) -> ByteBuffer? {
    let type = ByteBuffer()
    return type.append(contentTypeStart.bytes) && type.append(subtype) && type.append(byte: 0) ? type : nil
  }

  public init(
    authority: ByteBuffer?, contentType: ByteBuffer?, userAgent: ByteBuffer?, wish: EndpointWish? = nil,
    isForm: Bool = false
  ) {
    self.wish = wish
    self.isForm = isForm
    self.authority = authority
    self.contentType = contentType
    self.userAgent = userAgent
  }
}

/// The settings that `start` carries beside its metadata, such as limits, credentials and compression.
public struct CallSettings {
  public var maxReceiveBytes = 4 << 20
  public var maxSendBytes = Int(Int32.max)
  /// Header fields that are sent only over TLS. The object is never changed, only replaced, because call
  /// options share it.
  public var credentials: Metadata?
  /// The least private kind of channel that may carry the call, because its metadata contains a secret.
  public var privacy = Privacy.cleartext
  /// The compression of sent messages.
  public var compression = Compression.identity
  public var compressionUse = CompressionUse.whereSmaller
  public var idempotency = Idempotency.unknown
  public var getUse: GETUse {
    get { GETUse(rawValue: packed >> 1) ?? .allowed }
    set { packed = packed & 1 | newValue.rawValue << 1 }
  }
  /// Whether a method without side effects may be called by an HTTP GET, if the protocol allows it.
  public var allowsGET: Bool {
    get { getUse != .forbidden }
    set { getUse = newValue ? .allowed : .forbidden }
  }
  /// Whether the call waits for a connection, however long it takes (gRPC's "wait for ready"). If false, the
  /// call fails when the channel can't connect.
  public var waitsForReady: Bool {
    get { packed & 1 != 0 }
    set { packed = packed & ~1 | (newValue ? 1 : 0) }
  }
  /// `waitsForReady` in the lowest bit, `getUse` above it. The four small settings then fill 4 bytes, which are
  /// copied at once: 12 instructions a call.
  private var packed: UInt8 = 0

  public init() {}
}
