import PenstockCall
import PenstockWire

/// Makes the framing of each attempt, as its call asks: the one place that lists all framings.
///
/// A class of its own so that a test can put in another.
class Framings {
  func make(_ request: Request) -> Framing {
    GRPCFraming(
      compression: request.settings.compression, maxReceiveBytes: request.settings.maxReceiveBytes)
  }
}

/// The *framing* of calls: how a call's start, messages and end become HTTP messages, and back. One object per
/// attempt. It knows nothing of connections and never calls out.
///
/// A class that is borrowed. Functions that not every framing needs have a default here.
class Framing {
  /// The time at which a request's headers can be made.
  enum Opening: Equatable {
    case atOnce
    /// When all that the call has to say is there: a GET says it in its path.
    case whole
  }

  final let opening: Opening
  /// How many messages the headers say, and not the body.
  final var messagesInHeaders: UInt32 = 0

  init(opening: Opening = .atOnce) {
    self.opening = opening
    confine(self)
  }

  // MARK: Request

  /// Adds the request's header list as it goes on the wire, pseudo headers first; it refers to the request's own bytes.
  /// False: no memory.
  func requestHeaders(
    _ request: Request, _ defaults: RequestDefaults, now: UInt64, into fields: FieldList
  ) -> Bool { false }
  func encode(_ message: Message) -> FramedMessage { .inHeaders }
  /// A message takes long to compress, and others may wait behind it: `encodeNext`, a turn later.
  final var isPacking = false
  func encodeNext() -> FramedMessage { .later }

  // MARK: Response

  func responseHeaders(_ block: HeaderBlock, endsStream: Bool) -> ResponseStart { .informational }
  /// Takes bytes of the body, up to the end of one message. Not while `isBusy`.
  func decode(_ bytes: ByteView) -> (consumed: Int, step: BodyStep) { (bytes.count, .needsMore) }
  /// A message has come, and takes long to decompress: `proceed`, in the next turn.
  final var isBusy = false
  func proceed() -> BodyStep { .needsMore }
  /// The status that trailers carry.
  func status(ofTrailers block: HeaderBlock) -> Status { Status(.unknown) }
  /// The status of a stream that has ended, after all that `decode` could give. `trailers`: their status, or the
  /// body in their place.
  func status(_ end: StreamEnd, trailers: consuming Status?, deadlineHasPassed: Bool) -> Status {
    trailers ?? Status(.unknown)
  }

  // MARK: Reading ahead

  /// Where the next bytes of the message that is under way may be put before `decode` gets them; nil: there is none.
  func place() -> UnsafeMutableRawBufferPointer? { nil }
  /// A whole message stands at the front, and none is under way.
  func beginsWithMessage(_ bytes: ByteView) -> Bool { false }
  /// Whether a whole message begins that has no more than `limit` bytes, not compressed, and another whole one follows.
  func beginsWithTwo(_ bytes: ByteView, limit: Int) -> Bool { false }
}

enum FramedMessage {
  case piece(BodyPiece)
  /// The headers say it: `messagesInHeaders` counts it.
  case inHeaders
  /// `isPacking` from here on.
  case later
  case failed(Status)
}

enum ResponseStart {
  /// An informational answer: the real one follows.
  case informational
  case headers(Metadata)
  /// No body is of interest: the call ends.
  case ended(Status)
}

enum BodyStep {
  case needsMore
  /// `isBusy` from here on.
  case busy
  /// `size`: the message's as it came, compressed or not.
  case message(Message, size: Int)
  /// The status came in the body, in place of trailers.
  case trailers(Status)
  case failed(Status)
}
