import PenstockCall
import PenstockWire

/// Makes the framing of each attempt, as the settings of its call and channel demand. Only this code has a
/// list of all framings.
///
/// The function is in a class, so that a test can use a subclass.
class Framings {
  func make(_ request: Request, _ defaults: RequestDefaults) -> Framing {
    let (compression, limit) = (request.settings.compression, request.settings.maxReceiveBytes)
    switch defaults.rpc {
    case .grpc: return GRPCFraming(compression: compression, maxReceiveBytes: limit)
    case .grpcWeb, .grpcWebText, .connect: return makeOther(request, defaults)
    }
  }

  @inline(never) @_optimize(size)
  private func makeOther(_ request: Request, _ defaults: RequestDefaults) -> Framing {
    switch defaults.rpc {
    case .grpc, .grpcWeb: return GRPCWebFraming(request, isText: false)
    case .grpcWebText: return GRPCWebFraming(request, isText: true)
    case .connect:
      return request.kind == .unary
        ? ConnectUnaryFraming(request, defaults) : ConnectStreamFraming(request)
    }
  }
}

/// The *framing* of a call: the conversion of its start, messages and end to HTTP messages, and back. Each
/// attempt has one such object. It knows nothing of connections, and calls no code of other layers.
///
/// It is a class, and not a protocol, so that a reference can be borrowed without reference counting.
/// Functions that only some framings need have a default here.
class Framing {
  /// The moment when a request's headers can be made.
  enum Opening: Equatable {
    case atOnce
    /// The headers can be made only when all request messages are known. For example, the path of a GET
    /// contains the message.
    case whole
  }

  final let opening: Opening
  /// The number of messages that are sent in the headers, not in the body.
  final var messagesInHeaders: UInt32 = 0

  init(opening: Opening = .atOnce) {
    self.opening = opening
    confine(self)
  }

  // MARK: Request

  /// Adds the request's header list in the order of sending, pseudo headers first. The list has pointers into
  /// the request's own bytes. False: no memory.
  func requestHeaders(
    _ request: Request, _ defaults: RequestDefaults, now: UInt64, into fields: FieldList
  ) -> Bool { false }
  func encode(_ message: Message) -> FramedMessage { .inHeaders(size: 0, wireSize: 0) }
  /// Whether a message is being compressed, which takes long. Other messages may wait behind it. `encodeNext`
  /// goes on, one turn later.
  final var isPacking = false
  func encodeNext() -> FramedMessage { .later }

  // MARK: Response

  func responseHeaders(_ block: HeaderBlock, endsStream: Bool) -> ResponseStart { .informational }
  /// Decodes bytes of the body, up to the end of one message. Must not be called while `isBusy`.
  func decode(_ bytes: ByteView) -> (consumed: Int, step: BodyStep) { (bytes.count, .needsMore) }
  /// Whether a large message was received and is being decompressed, in slices. A call of `proceed` in the
  /// next turn does the next slice.
  final var isBusy = false
  func proceed() -> BodyStep { .needsMore }
  /// Whether `bodyEnds` has to be asked.
  final var hearsEnd = false
  /// The last step of a body whose end nothing in it marks: the stream has ended in order, and `decode` has taken the
  /// whole body. Asked once, if `hearsEnd`.
  func bodyEnds() -> BodyStep { .needsMore }
  /// The status that trailers carry; nil: the framing has it elsewhere.
  func status(ofTrailers block: HeaderBlock) -> Status? { nil }
  /// The status of a stream that has ended, after `decode` has taken the whole body. `trailers`: the status
  /// that came in the trailers, or in the body instead of trailers.
  func status(_ end: StreamEnd, trailers: consuming Status?, deadlineHasPassed: Bool) -> Status {
    trailers ?? Status(.unknown)
  }

  // MARK: Reading ahead

  /// The space within the unfinished message into which its next bytes may be received, before `decode` gets
  /// them; nil: no such space.
  func space() -> UnsafeMutableRawBufferPointer? { nil }
  /// Whether `bytes` begin with a whole message. False also if an earlier message is unfinished.
  func beginsWithMessage(_ bytes: ByteView) -> Bool { false }
  /// Whether `bytes` begin with two whole messages, and the first message is not compressed and has at most
  /// `limit` bytes.
  func beginsWithTwo(_ bytes: ByteView, limit: Int) -> Bool { false }
}

enum FramedMessage {
  case piece(BodyPiece)
  /// The message goes in the headers: `messagesInHeaders` counts it. `size`: its size, compressed or not, and
  /// `wireSize` as it is sent.
  case inHeaders(size: Int, wireSize: Int)
  /// The message is encoded later, by `encodeNext`: `isPacking` is true until then.
  case later
  case failed(Status)
}

enum ResponseStart {
  /// An informational (1xx) response. The final response follows.
  case informational
  case headers(Metadata)
  /// The body has the status, and no message: the call hears of no headers, and its demand does not matter.
  case statusInBody
  /// The call ends with this status, and the body does not matter.
  case ended(Status)
}

enum BodyStep {
  case needsMore
  /// The message is not decompressed yet. `proceed` does so in later turns; until then `isBusy` is true.
  case busy
  /// A message. `size`: its size in bytes as received, compressed or not.
  case message(Message, size: Int)
  /// The status was received in the body, in place of trailers.
  case trailers(Status)
  case failed(Status)
}
