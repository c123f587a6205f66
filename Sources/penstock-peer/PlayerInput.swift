import PenstockWire
import PenstockHTTP

/// Counts the client's events, by kind. A client that does not begin with the preface of HTTP/2 speaks
/// HTTP/1.1. Header blocks are not decoded, because no step of a script depends on their contents.
final class PlayerInput {
  private struct Stream {
    var id: Int
    var hasEnded = false
    var decoder = MessageDecoder(limit: 1 << 30)
  }

  private let bytes = ByteBuffer()
  private let number: Int
  private let prints: Bool
  private var hasPreface = false
  /// The parser of HTTP/1.1 requests. After a malformed request it reports nothing more.
  private var requests: RequestParser?
  private var seen: [Int] = Array(repeating: 0, count: Script.Event.count)
  private var streams: [Stream] = []
  /// The index of the current stream in `streams`; -1: no stream is open yet.
  private var currentIndex = -1

  private static let preface: StaticString = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

  init(number: Int, prints: Bool) {
    self.number = number
    self.prints = prints
  }

  /// The id of the current stream (docs/peer.md); 1 before the first HEADERS.
  var current: Int { currentIndex >= 0 && currentIndex < streams.count ? streams[currentIndex].id : 1 }

  /// Makes the stream that the client has opened as its number `count` the current stream.
  func follow(_ count: Int) { currentIndex = min(count, streams.count) - 1 }

  func has(_ event: Script.Event, _ count: Int) -> Bool {
    if event == .end {
      return currentIndex >= 0 && currentIndex < streams.count && streams[currentIndex].hasEnded
    }
    return seen[event.rawValue] >= count
  }

  func note(_ event: Script.Event, stream: Int = 0) {
    seen[event.rawValue] += 1
    if prints {
      let line = Console.out.line
      line.put("{\"connection\":").put(number).put(",\"event\":\"").put(event.name).put("\"")
      if stream != 0 { line.put(",\"stream\":").put(stream) }
      line.put("}\n")
    }
  }

  func take(_ more: ByteView) {
    if requests != nil { return takeRequests(more) }
    if !bytes.append(more) { return }
    if !hasPreface {
      let count = PlayerInput.preface.utf8CodeUnitCount
      let begun = min(count, bytes.count)
      if !bytesEqual(part(bytes.view, 0, begun), part(PlayerInput.preface.bytes, 0, begun)) {
        requests = RequestParser()
        return takeRequests(bytes.view)
      }
      if begun < count { return }
      hasPreface = true
      bytes.consume(count)
      note(.preface)
    }
    while bytes.count >= 9 {
      let header = bytes.view
      let length = Int(header[0]) << 16 | Int(header[1]) << 8 | Int(header[2])
      if bytes.count < 9 + length { return }
      let stream = Int(header[5] & 0x7F) << 24 | Int(header[6]) << 16 | Int(header[7]) << 8 | Int(header[8])
      frame(header[3], header[4], stream, part(header, 9, 9 + length))
      bytes.consume(9 + length)
    }
  }

  private func takeRequests(_ more: ByteView) {
    guard requests?.input.append(more) == true else { return }
    while let event = requests?.next() {
      switch event {
      case .needsMore, .malformed: return
      case .headersEnd: note(.requestHead)
      case .end: note(.request)
      case .request, .field, .body: continue
      }
    }
  }

  private func frame(_ type: UInt8, _ flags: UInt8, _ stream: Int, _ payload: ByteView) {
    switch type {
    case 0:
      note(.data, stream: stream)
      messages(stream, flags & 8 == 0 ? payload : part(payload, 1, payload.count - Int(payload.first ?? 0)))
      if flags & 1 != 0 { end(stream) }
    case 1:
      if index(stream) == nil { streams.append(Stream(id: stream)) }
      note(.headers, stream: stream)
      if flags & 1 != 0 { end(stream) }
    case 3: note(.rst, stream: stream)
    case 4: note(flags & 1 != 0 ? .settingsAck : .settings)
    case 6: note(flags & 1 != 0 ? .pingAck : .ping)
    case 7: note(.goaway)
    case 8: note(.windowUpdate, stream: stream)
    default: return
    }
  }

  private func index(_ stream: Int) -> Int? { streams.firstIndex { $0.id == stream } }

  private func end(_ stream: Int) {
    guard let i = index(stream) else { return }
    streams[i].hasEnded = true
    note(.end, stream: stream)
  }

  private func messages(_ stream: Int, _ data: ByteView) {
    guard let i = index(stream) else { return }
    var rest = data
    while true {
      let (used, event) = streams[i].decoder.push(rest)
      rest = part(rest, used, rest.count)
      guard case .message = event else { return }
      note(.message, stream: stream)
    }
  }
}
