import PenstockCall
import PenstockWire
import PenstockLoop
import PenstockHTTP

/// Makes the framing of each attempt, as the settings of its call and channel demand. Only this code has a
/// list of all framings.
///
/// The function is in a class, so that a test can use a subclass.
public class Framings {
  public init() {}

  public func make(_ request: Request, _ defaults: RequestDefaults) -> Framing {
    let framing = new(request, defaults)
    if let own = defaults.compressors { framing.compressors = own }
    return framing
  }

  private func new(_ request: Request, _ defaults: RequestDefaults) -> CommonFraming {
    if request.labels?.isForm == true { return FormFraming(request, defaults) }
    let settings = request.settings
    switch defaults.rpc {
    case .grpc:
      return GRPCFraming(
        compression: settings.compression, settings.compressionUse, maxReceiveBytes: settings.maxReceiveBytes)
    case .grpcWeb: return GRPCWebFraming(request, defaults, isText: false)
    case .grpcWebText: return GRPCWebFraming(request, defaults, isText: true)
    case .connect:
      return request.kind == .unary
        ? ConnectUnaryFraming(request, defaults) : ConnectStreamFraming(request)
    }
  }
}

/// The *framing* of a call: the conversion of its start, messages and end to HTTP messages, and back. Each
/// attempt has one such object. It knows nothing of connections, and calls no code of other layers, but for the
/// program's compressors.
///
/// It is a class, and not a protocol, so that a reference can be borrowed without reference counting. A
/// function with `mustOverride` is needed by each framing, or by each that lets it be called (`rest`,
/// `sendsRest`, `isBusy`, `hearsEnd`); the others have a default here.
public class Framing {
  /// The moment when a request's headers can be made.
  public enum Opening: Equatable, Sendable {
    case atOnce
    /// The headers can be made only when all request messages are known. For example, the path of a GET
    /// contains the message.
    case whole
  }

  public final let opening: Opening
  /// The number of messages that are sent in the headers, not in the body.
  public final var messagesInHeaders: UInt32 = 0

  public init(opening: Opening = .atOnce) {
    self.opening = opening
    confine(self)
  }

  // MARK: Request

  /// Adds the request's header list in the order of sending, pseudo headers first. The list has pointers into
  /// the request's own bytes. False: no memory.
  public func requestHeaders(
    _ request: Request, _ defaults: RequestDefaults, now: UInt64, into fields: FieldList
  ) -> Bool { mustOverride(false) }
  public func encode(_ message: Message) -> FramedMessage { mustOverride(.inHeaders(size: 0, wireSize: 0)) }
  /// The part of the request's body that the framing has not returned yet.
  public enum Rest: Equatable {
    case nothing
    /// A large message, which is being compressed or encoded in slices. Other messages may wait behind it. A
    /// call of `encodeNext` in a later turn does the next slice.
    case message
    /// The last bytes so far. Their form depends on the bytes that follow, or on the end of the body.
    case bytes
  }
  public final var rest = Rest.nothing
  public final var isPacking: Bool { rest == .message }
  public func encodeNext() -> FramedMessage { mustOverride(.later) }
  /// Returns the last piece of the body. Called at the half-close if `rest` is `bytes`.
  public func lastPiece() -> FramedMessage { mustOverride(.later) }
  /// Whether the attempt sends `lastPiece` before the half-close, too, if nothing comes behind: the server may need the
  /// whole message for its answer.
  public final var sendsRest = false
  /// Whether the attempt may wait a while for what comes behind, if `sendsRest`.
  public var mayWaitWithRest: Bool { mustOverride(false) }
  /// Stores the timer for that wait as `timer`.
  public func store(_ timer: Timer) { mustOverride(()) }

  // MARK: Response

  public func responseHeaders(_ block: HeaderBlock, endsStream: Bool) -> ResponseStart {
    mustOverride(.informational)
  }
  /// Decodes bytes of the body, up to the end of one message. Must not be called while `isBusy`.
  public func decode(_ bytes: ByteView) -> (consumed: Int, step: BodyStep) {
    mustOverride((bytes.count, .needsMore))
  }
  /// Whether a large message was received and is being decompressed, in slices. A call of `proceed` in the
  /// next turn does the next slice.
  public final var isBusy = false
  public func proceed() -> BodyStep { mustOverride(.needsMore) }
  /// The timer that the attempt disarms when it ends; nil, as by default: the framing has none.
  public var timer: Timer? { nil }
  /// Whether the attempt has to call `bodyEnds` when the stream has ended.
  public final var hearsEnd = false
  /// Returns the last step of a body whose own bytes do not mark its end. Called once if `hearsEnd`, when the
  /// stream has ended without an error and `decode` has used the whole body.
  public func bodyEnds() -> BodyStep { mustOverride(.needsMore) }
  /// The status that the trailers in `block` contain; nil, as by default: the protocol has the
  /// status elsewhere.
  public func status(ofTrailers block: HeaderBlock) -> Status? { nil }
  /// The status of a stream that has ended, after `decode` has used the whole body. `trailers`: the status
  /// from the trailers, or from the body in protocols that have it there.
  public func status(_ end: StreamEnd, trailers: consuming Status?, deadlineHasPassed: Bool) -> Status {
    mustOverride(trailers ?? Status(.unknown))
  }

  // MARK: Reading ahead

  /// The space within the unfinished message into which its next bytes may be received, before `decode` gets
  /// them; nil, as by default: no such space.
  public func space() -> UnsafeMutableRawBufferPointer? { nil }
  /// Whether `bytes` begin with a whole message. False also if an earlier message is unfinished.
  /// By default nothing is read ahead.
  public func beginsWithMessage(_ bytes: ByteView) -> Bool { false }
  /// Whether `bytes` begin with the whole last frame, uncompressed. It is read even without demand. By default
  /// no frame is the last.
  public func beginsWithLast(_ bytes: ByteView) -> Bool { false }
  /// Whether `bytes` begin with two whole messages, and the first message is not compressed and has at most
  /// `limit` bytes. By default nothing is read ahead.
  public func beginsWithTwo(_ bytes: ByteView, limit: Int) -> Bool { false }
}

public enum FramedMessage {
  case piece(BodyPiece)
  /// The message is sent in the headers, and is counted in `messagesInHeaders`. `size`: its size in bytes,
  /// perhaps compressed. `wireSize`: its size as it is sent.
  case inHeaders(size: Int, wireSize: Int)
  /// The message is not encoded yet. `encodeNext` does so in later turns; until then `rest` is `message`.
  case later
  case failed(Status)
}

public enum ResponseStart {
  /// An informational (1xx) response. The final response follows.
  case informational
  case headers(Metadata)
  /// The body contains the status and no message. The call gets no headers, and the body is read even without
  /// demand.
  case statusInBody
  /// The answer belongs to no RPC, such as a proxy's page. The call ends with this status; `ForeignFraming` reads the
  /// first bytes of the body for it.
  case foreign(Status)
  /// The call ends with this status, and the body is ignored.
  case ended(Status)
}

public enum BodyStep {
  case needsMore
  /// The message is not decompressed yet. `proceed` does so in later turns; until then `isBusy` is true.
  case busy
  /// A message. `size`: its size in bytes as received, compressed or not.
  case message(Message, size: Int)
  /// The status was received in the body, in place of trailers.
  case trailers(Status)
  case failed(Status)
}
