import CPenstockZlib
import PenstockWire
import PenstockHTTP

/// A script for connections: the frames to send, the events to wait for, and the end. docs/peer.md has the language.
final class Script {
  enum Loaded {
    case loaded(Script)
    case failed(ByteBuffer)
  }

  /// The kinds of events that a script can wait for.
  enum Event: Int {
    case preface, settings, settingsAck, headers, data, message, end, rst, ping, pingAck, goaway,
      windowUpdate, close, requestHead, request

    static let count = 15

    init?(_ word: ByteView) {
      let words: [StaticString] = [
        "preface", "settings", "settings-ack", "headers", "data", "message", "end", "rst", "ping", "ping-ack",
        "goaway", "window-update", "close", "request-head", "request",
      ]
      for i in 0..<words.count where bytesEqual(word, words[i]) {
        self.init(rawValue: i)
        return
      }
      return nil
    }

    var name: StaticString {
      switch self {
      case .preface: return "preface"
      case .settings: return "settings"
      case .settingsAck: return "settings-ack"
      case .headers: return "headers"
      case .data: return "data"
      case .message: return "message"
      case .end: return "end"
      case .rst: return "rst"
      case .ping: return "ping"
      case .pingAck: return "ping-ack"
      case .goaway: return "goaway"
      case .windowUpdate: return "window-update"
      case .close: return "close"
      case .requestHead: return "request-head"
      case .request: return "request"
      }
    }
  }

  enum TLSMessage { case keyUpdate, ticket }

  enum Step {
    case expect(Event, times: Int)
    case send(FrameStep)
    case sayTLS(TLSMessage, times: Int)
    case delay(UInt64)
    case repeated(Int)
    case again
    case close, reset, halfClose, silence, deaf
  }

  final class Section {
    /// The number of the connection that plays this section; nil: all connections without a section of their
    /// own.
    let connection: Int?
    var steps: [Step] = []
    /// Whether the connection is served as without a script, and no steps are played.
    var serves = false

    init(_ connection: Int?) { self.connection = connection }
  }

  var sections: [Section] = []

  /// The section for the connection with this number; else the section for all other connections; else the last
  /// section.
  func section(for connection: Int) -> Section? {
    for section in sections where section.connection == connection { return section }
    for section in sections where section.connection == nil { return section }
    return sections.last
  }

  /// Reads and parses the file at `path`. zlib reads it, because it is linked anyway, and also reads files
  /// that are not compressed.
  static func load(_ path: ByteView, answerType: ByteView) -> Loaded {
    let name = Text().put(path)
    let text = Text()
    guard name.append(byte: 0), let start = name.view.baseAddress,
      let file = gzopen(start.assumingMemoryBound(to: CChar.self), "rb")
    else { return .failed(Text("cannot read ").put(path)) }
    defer { gzclose(file) }
    while text.count < 1 << 20 {
      guard let space = text.spare(atLeast: 4096) else { return .failed(Text("no memory")) }
      let n = gzread(file, space.baseAddress, 4096)
      if n < 0 { return .failed(Text("cannot read ").put(path)) }
      if n == 0 { break }
      text.commit(Int(n))
    }
    var parser = ScriptParser(text, answerType: answerType)
    if let wrong = parser.parse() { return .failed(Text().put(path).put(": ").put(wrong.view)) }
    return .loaded(parser.script)
  }
}

/// A step that sends a frame of HTTP/2, a part of an HTTP/1.1 answer, or other bytes. The parts of a step may
/// contradict each other, because scripts test how clients handle malformed bytes.
final class FrameStep {
  enum Stream {
    /// The stream of the last HEADERS frame that the script has waited for.
    case current
    case number(Int)
  }

  enum Kind {
    case frame, headers, pushPromise, goaway, raw
    /// Parts of an HTTP/1.1 answer: the head, a chunk, and the last chunk with the trailers.
    case response, chunk, lastChunk

    var hasFields: Bool {
      switch self {
      case .headers, .pushPromise, .response, .lastChunk: return true
      case .frame, .goaway, .raw, .chunk: return false
      }
    }
  }

  struct Field {
    var name: ByteBuffer
    var value: ByteBuffer
  }

  var kind = Kind.frame
  var type = 0
  var flags = 0
  var stream = Stream.current
  let payload = ByteBuffer()
  /// The header fields, or the trailers of a last chunk. The fields of HEADERS and PUSH_PROMISE are encoded
  /// only when they are sent, because the HPACK encoder has a state.
  var fields: [Field] = []
  /// The length in the frame's header, which may be wrong; nil: the true length.
  var length: Int?
  /// The number of bytes of the frame that are sent, if it is cut off; nil: all bytes.
  var cut: Int?
  var pad: Int?
  /// The number of bytes of the header block in each HEADERS and CONTINUATION frame; nil: one frame has the
  /// whole block.
  var split: Int?
  /// Whether END_HEADERS, or in HTTP/1.1 the empty line, is left out.
  var isOpen = false
  /// Whether the frame GOAWAY has the current stream as its last stream.
  var lastIsCurrent = false
  var last = 0
  var code = 0
  var promised = 2
  /// HTTP/1.1: the status line without its line end, or the size of a chunk in hexadecimal, which may be
  /// wrong.
  let line = ByteBuffer()
  var times = 1
}
