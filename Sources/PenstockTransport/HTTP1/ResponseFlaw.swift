/// A flaw of an HTTP/1.1 answer. Each flaw breaks the grammar of RFC 9112, or makes it uncertain where the
/// answer ends.
enum ResponseFlaw: CaseIterable {
  case notHTTP, version, status, switching, control, lineEnd, tooLong
  case folded, noColon, blankBeforeColon, name
  case lengthTwice, length, framingInTrailers, bothLengths, codingTwice, codingInOld, coding, bodyOfNone
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
    case .folded: "a line begins with a space or a tab (obsolete line folding)"
    case .noColon: "a field has no colon"
    case .blankBeforeColon: "a space or a tab before the colon of a field"
    case .name: "the name of a field is not a token"
    case .lengthTwice: "more than one content-length"
    case .length: "content-length is not a number"
    case .framingInTrailers: "a field among the trailers that would say where the answer ends"
    case .bothLengths: "both content-length and transfer-encoding"
    case .codingTwice: "more than one transfer-encoding"
    case .codingInOld: "a transfer-encoding in an answer of HTTP/1.0"
    case .coding: "a transfer-encoding other than \"chunked\", which was not asked for"
    case .bodyOfNone: "the length of a body with a status that has none"
    case .informational: "too many informational responses (1xx)"
    case .chunkSize: "the size of a chunk is not a hexadecimal number"
    case .chunkTooLarge: "the size of a chunk is too large a number"
    case .chunkLineTooLong: "the line is too long"
    case .extensions: "too many bytes of chunk extensions"
    case .chunkEnd: "no CR and LF behind a chunk"
    case .noMemory: "no memory"
    }
  }
}
