/// The life of a stream's request.
///
/// | | added | submitted | with its body | as a whole | headersSent | bodyGiven | allPacked | lastPacked | dataSent | over |
/// |---|---|---|---|---|---|---|---|---|---|---|
/// | created | queued | - | - | - | - | - | - | - | - | closed |
/// | queued | - | opening | openingWithBody | openingWhole | - | - | - | - | - | closed |
/// | opening | - | - | - | - | idle | - | - | - | - | closed |
/// | openingWithBody | - | - | - | - | sending | - | - | - | - | closed |
/// | openingWhole | - | - | - | - | ended | - | - | - | - | closed |
/// | idle | - | - | - | - | - | sending | - | - | - | closed |
/// | sending | - | - | - | - | - | - | emptying | ending | - | closed |
/// | emptying | - | - | - | - | - | - | - | - | idle | closed |
/// | ending | - | - | - | - | - | - | - | - | ended | closed |
/// | ended | - | - | - | - | - | - | - | - | - | closed |
/// | closed | - | - | - | - | - | - | - | - | - | - |
///
/// Rows: the present state. Columns: the event. Each cell has the next state; "-": the event changes nothing.
enum HTTP2StreamLife: CaseIterable {
  case created
  /// The stream waits in a queue until the session opens it.
  case queued
  /// nghttp2 has the HEADERS frame of the request, and has not sent it yet. Later frames of the request wait
  /// until it was sent.
  case opening
  /// nghttp2 has the HEADERS frame of the request, and has not sent it yet. nghttp2 also has the body that
  /// follows.
  case openingWithBody
  /// nghttp2 has the HEADERS frame of the request with END_STREAM, and has not sent it yet.
  case openingWhole
  /// The HEADERS frame was sent, and no bytes of the body are ready to be sent.
  case idle
  /// The HEADERS frame was sent, and nghttp2 has a body of the stream to send.
  case sending
  /// All bytes that are ready are in a DATA frame, which nghttp2 has not sent yet.
  case emptying
  /// Our END_STREAM is in a frame that nghttp2 has not sent yet.
  case ending
  /// Our END_STREAM was sent.
  case ended
  case closed

  enum Event {
    case added
    case submitted(withBody: Bool)
    /// The request was submitted to nghttp2 with END_STREAM in its HEADERS frame.
    case submittedWhole
    case headersSent
    case bodyGiven
    /// A DATA frame contains all bytes that are ready; the body continues later.
    case allPacked
    /// A DATA frame with END_STREAM contains the last bytes of the body.
    case lastPacked
    case dataSent
    case over
  }

  @inline(__always)
  mutating func handle(_ event: Event) {
    switch event {
    case .added: if self == .created { self = .queued }
    case .submitted(let withBody): if self == .queued { self = withBody ? .openingWithBody : .opening }
    case .submittedWhole: if self == .queued { self = .openingWhole }
    case .headersSent:
      if self == .opening { self = .idle }
      if self == .openingWhole { self = .ended }
      if self == .openingWithBody { self = .sending }
    case .bodyGiven: if self == .idle { self = .sending }
    case .allPacked: if self == .sending { self = .emptying }
    case .lastPacked: if self == .sending { self = .ending }
    case .dataSent:
      if self == .emptying { self = .idle }
      if self == .ending { self = .ended }
    case .over: self = .closed
    }
  }

  /// Whether nghttp2 has the request's headers, but has not sent them yet.
  var isOpening: Bool {
    switch self {
    case .opening, .openingWithBody, .openingWhole: return true
    case .created, .queued, .idle, .sending, .emptying, .ending, .ended, .closed: return false
    }
  }

  /// Whether nghttp2 knows of the stream.
  var isOpen: Bool {
    switch self {
    case .opening, .openingWithBody, .openingWhole, .idle, .sending, .emptying, .ending, .ended: return true
    case .created, .queued, .closed: return false
    }
  }
}
