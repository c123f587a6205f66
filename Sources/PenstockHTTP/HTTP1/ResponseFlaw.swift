import PenstockWire

/// A flaw of an HTTP/1.1 answer. Each flaw breaks the grammar of RFC 9112, or makes it uncertain where the
/// answer ends.
enum ResponseFlaw: CaseIterable {
  case notHTTP, version, status, switching, control, lineEnd, tooLong
  case folded, noColon, blankBeforeColon, name
  case lengthTwice, length, framingInTrailers, bothLengths, codingTwice, codingInOld, coding
  case informational
  case chunkSize, chunkTooLarge, chunkLineTooLong, extensions, chunkEnd
  case noMemory

  /// The text for the flaw, with the rule that was broken.
  var words: StaticString {
    switch self {
    case .notHTTP: "not HTTP"
    case .version: "the version is not HTTP/1.x"
    case .status: "the status is not three digits between spaces"
    case .switching: "the status 101, though no other protocol was asked for"
    case .control: "a control character"
    case .lineEnd: "a line does not end with CR and LF"
    case .tooLong: "too long"
    case .folded: "a space or a tab before the first field"
    case .noColon: "a field has no colon"
    case .blankBeforeColon: "a space or a tab before the colon of a field"
    case .name: "the name of a field is not a token"
    case .lengthTwice: "two values of content-length that contradict each other"
    case .length: "content-length is not a number"
    case .framingInTrailers: "a field among the trailers that would say where the answer ends"
    case .bothLengths: "both content-length and transfer-encoding"
    case .codingTwice: "more than one transfer-encoding"
    case .codingInOld: "a transfer-encoding in an answer of HTTP/1.0"
    case .coding: "a transfer-encoding other than \"chunked\", which was not asked for"
    case .informational: "too many informational responses (1xx)"
    case .chunkSize: "the size of a chunk is not a hexadecimal number"
    case .chunkTooLarge: "the size of a chunk is too large a number"
    case .chunkLineTooLong: "the line is too long"
    case .extensions: "too many bytes of chunk extensions"
    case .chunkEnd: "no CR and LF behind a chunk"
    case .noMemory: "no memory"
    }
  }

  /// The most bytes that an error text shows of the answer.
  private static let mostShown = 60

  /// The error text. `line`: the name of the line with the flaw, whose first bytes are `shown`.
  func text(in line: StaticString, _ shown: ByteView, _ maxHeaderList: Int) -> ByteBuffer {
    let text = ByteBuffer()
    switch self {
    case .noMemory: return text.say("no memory for the answer")
    case .tooLong:
      return text.say("the connection ended: received headers are over four times the limit of ")
        .say(maxHeaderList).say(" bytes (max_header_list_bytes)")
    case .notHTTP:
      text.say("the peer does not speak HTTP/1.1: it answered")
    case .version, .status, .switching, .control, .lineEnd, .folded, .noColon, .blankBeforeColon, .name,
      .lengthTwice, .length, .framingInTrailers, .bothLengths, .codingTwice, .codingInOld, .coding,
      .informational, .chunkSize, .chunkTooLarge, .chunkLineTooLong, .extensions, .chunkEnd:
      text.say("the server broke the rules of HTTP/1.1: ").say(words)
      if shown.isEmpty { return text }
      text.say(", in the ").say(line)
    }
    return text.say(" \"").say(printable: shown, limit: ResponseFlaw.mostShown).say("\"")
  }
}
