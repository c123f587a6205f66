/// The life of a stream's request.
///
/// | | added | submitted | with its body | headersLeft | bodyGiven | allPacked | lastPacked | dataLeft | over |
/// |---|---|---|---|---|---|---|---|---|---|
/// | created | queued | - | - | - | - | - | - | - | closed |
/// | queued | - | opening | openingWithBody | - | - | - | - | - | closed |
/// | opening | - | - | - | idle | - | - | - | - | closed |
/// | openingWithBody | - | - | - | sending | - | - | - | - | closed |
/// | idle | - | - | - | - | sending | - | - | - | closed |
/// | sending | - | - | - | - | - | emptying | ending | - | closed |
/// | emptying | - | - | - | - | - | - | - | idle | closed |
/// | ending | - | - | - | - | - | - | - | ended | closed |
/// | ended | - | - | - | - | - | - | - | - | closed |
/// | closed | - | - | - | - | - | - | - | - | - |
///
/// Each cell has the state that follows; "-" changes nothing.
enum HTTP2StreamLife: CaseIterable {
  case created
  /// The stream waits until the session opens it.
  case queued
  /// The HEADERS frame of the request is on its way; later frames of the request wait until it has left.
  case opening
  /// The HEADERS frame of the request is on its way, and nghttp2 knows of the body behind it.
  case openingWithBody
  /// The HEADERS frame has left, and there is nothing to send now.
  case idle
  /// nghttp2 has a body of the stream to send.
  case sending
  /// A DATA frame on its way has all bytes that there are to send now.
  case emptying
  /// Our END_STREAM is on its way.
  case ending
  /// Our END_STREAM has left.
  case ended
  case closed

  enum Event {
    case added
    case submitted(withBody: Bool)
    case headersLeft
    case bodyGiven
    /// All that there is to send now is in a DATA frame.
    case allPacked
    /// All that there is to send is in a DATA frame with END_STREAM.
    case lastPacked
    case dataLeft
    case over
  }

  @inline(__always)
  mutating func handle(_ event: Event) {
    switch event {
    case .added: if self == .created { self = .queued }
    case .submitted(let withBody): if self == .queued { self = withBody ? .openingWithBody : .opening }
    case .headersLeft:
      if self == .opening { self = .idle }
      if self == .openingWithBody { self = .sending }
    case .bodyGiven: if self == .idle { self = .sending }
    case .allPacked: if self == .sending { self = .emptying }
    case .lastPacked: if self == .sending { self = .ending }
    case .dataLeft:
      if self == .emptying { self = .idle }
      if self == .ending { self = .ended }
    case .over: self = .closed
    }
  }

  /// Whether nghttp2 knows of the stream.
  var isOpen: Bool {
    switch self {
    case .opening, .openingWithBody, .idle, .sending, .emptying, .ending, .ended: return true
    case .created, .queued, .closed: return false
    }
  }
}
