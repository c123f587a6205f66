@testable import PenstockHTTP
@testable import PenstockLink

/// The rows of answers that `ResponseParserTests` parses.
extension ResponseParserTests {
  // MARK: Answers that are well formed

  static let ok = "HTTP/1.1 200 OK\r\n"
  static let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

  static let golden: [Row] = [
    // RFC 9112 sections 2.1 and 3: complete answers.
    Row(
      "content-length", ok + "Content-Length: 5\r\n\r\nhello", "head :status=200 content-length=5",
      "body hello", "end"),
    Row("no body", ok + "Content-Length: 0\r\n\r\n", "only :status=200 content-length=0"),
    Row(
      "zeros", ok + "Content-Length: 005\r\n\r\nhello", "head :status=200 content-length=005", "body hello",
      "end"),
    // RFC 9110 section 8.6: equal lengths count as one.
    Row(
      "the same length twice", ok + "Content-Length: 5\r\nA: b\r\nContent-Length: 05\r\n\r\nhello",
      "head :status=200 content-length=5 a=b", "body hello", "end"),
    Row(
      "a list of equal lengths", ok + "Content-Length: 5, 5 ,005\r\n\r\nhello",
      "head :status=200 content-length=5", "body hello", "end"),
    // Section 4: the reason may be empty, and have any visible characters. The blank before it may be missing.
    Row("no blank", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "only :status=200 content-length=0"),
    Row("no reason", "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", "only :status=200 content-length=0"),
    Row(
      "reason", "HTTP/1.1 404 Not \tFound: \u{e9}!\r\nContent-Length: 0\r\n\r\n",
      "only :status=404 content-length=0"),
    Row("status 999", "HTTP/1.1 999 ?\r\nContent-Length: 0\r\n\r\n", "only :status=999 content-length=0"),
    // Section 5: spaces or tabs around values, or none; names in upper and lower case.
    Row(
      "white space", ok + "A:b\r\nC: \t d e\tf \t\r\nEmpty:\r\nBlank: \t\r\nCONTENT-LENGTH:\t0 \r\n\r\n",
      "only :status=200 a=b c=d e\tf empty= blank= content-length=0"),
    Row(
      "characters", ok + "!#$%&'*+-.^_`|~09azAZ: :;\"\u{80}\u{ff}\r\nContent-Length: 0\r\n\r\n",
      "only :status=200 !#$%&'*+-.^_`|~09azaz=:;\"\u{80}\u{ff} content-length=0"),
    // Section 5.2: obsolete line folding counts as a blank.
    Row(
      "folded", ok + "A: b\r\n c\r\n\t d \r\n \r\nB:\r\n  e\r\nContent-Length:\r\n 0\r\n\r\n",
      "only :status=200 a=b c d b=e content-length=0"),
    Row(
      "nothing in the fold", ok + "A:\r\n \r\nContent-Length: 0\r\n\t\r\n\r\n",
      "only :status=200 a= content-length=0"),
    Row(
      "folded before the final answer",
      "HTTP/1.1 100 \r\nA: b\r\n c\r\n\r\nHTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n",
      "only :status=200 content-length=0"),
    Row(
      "repeated", ok + "A: 1\r\na: 2\r\nContent-Length: 0\r\n\r\n",
      "only :status=200 a=1 a=2 content-length=0"),
    Row(
      "grpc",
      ok
        + "Content-Type: application/grpc\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nGrpc-Status: 0\r\n\r\n",
      "head :status=200 content-type=application/grpc", "body abc", "trailers grpc-status=0"),
    // RFC 9110 section 7.6.1: fields that concern only the connection are not in the head.
    Row(
      "hop by hop",
      ok
        + "Connection: keep-alive, foo\r\nKeep-Alive: timeout=5\r\nProxy-Connection: close\r\nTE: x\r\nUpgrade: h2c\r\n"
        + "X: 1\r\nContent-Length: 0\r\n\r\n", "only :status=200 x=1 content-length=0"),
    // RFC 9112 sections 9.3 and 9.6: answers that decide whether the connection may be used again.
    Row(
      "close", ok + "Connection: close\r\nContent-Length: 0\r\n\r\n", "only :status=200 content-length=0",
      persists: false),
    Row(
      "close among others", ok + "Connection: , foo ,CLOSE, keep-alive\r\nContent-Length: 0\r\n\r\n",
      "only :status=200 content-length=0", persists: false),
    Row(
      "close in a second field",
      ok + "Connection: keep-alive\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
      "only :status=200 content-length=0", persists: false),
    Row(
      "closer", ok + "Connection: closer\r\nContent-Length: 0\r\n\r\n", "only :status=200 content-length=0"),
    Row(
      "HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab", "head :status=200 content-length=2",
      "body ab", "end",
      persists: false),
    Row(
      "HTTP/1.0 kept", "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nab",
      "head :status=200 content-length=2", "body ab", "end"),
    // RFC 9110 section 2.5: a higher minor version than 1 is accepted.
    Row("HTTP/1.9", "HTTP/1.9 200 OK\r\nContent-Length: 0\r\n\r\n", "only :status=200 content-length=0"),
    // Section 6.3: the rules for the end of the body.
    Row(
      "until close", ok + "\r\nhello", "head :status=200", "body hello", "end", persists: false,
      untilClose: true),
    Row("until close, empty", ok + "\r\n", "head :status=200", "end", persists: false, untilClose: true),
    Row(
      "until close, HTTP/1.0", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n0\r\n\r\n",
      "head :status=200",
      "body 0\r\n\r\n", "end", persists: false, untilClose: true),
    Row("204", "HTTP/1.1 204 No Content\r\n\r\n", "only :status=204"),
    Row(
      "204 with 0", "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
      "only :status=204 content-length=0"),
    Row(
      "204 with a length", "HTTP/1.1 204 \r\nContent-Length: 5\r\n\r\n", "only :status=204 content-length=5"),
    Row("204 chunked", "HTTP/1.1 204 \r\nTransfer-Encoding: chunked\r\n\r\n", "only :status=204"),
    Row(
      "204 with anything",
      "HTTP/1.1 204 \r\nTransfer-Encoding: x\r\nContent-Length: y\r\nContent-Length: 1\r\n\r\n",
      "only :status=204 content-length=y content-length=1"),
    Row("304", "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", "only :status=304 content-length=7"),
    Row("304 chunked", "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", "only :status=304"),
    Row("205", "HTTP/1.1 205 Reset\r\nContent-Length: 0\r\n\r\n", "only :status=205 content-length=0"),
    // RFC 9110 section 15.2: informational responses.
    Row(
      "100", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
      "only :status=200 content-length=0"),
    Row(
      "103",
      "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: close\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
      "head :status=200 content-length=1", "body a", "end"),
    Row(
      "lengths of informational answers",
      "HTTP/1.1 100 \r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nHTTP/1.1 102 \r\nTransfer-Encoding: x\r\n"
        + "Content-Length: y\r\n\r\nHTTP/1.1 200 \r\nContent-Length: 1\r\n\r\na",
      "head :status=200 content-length=1", "body a", "end"),
    Row(
      "as many as may be",
      String(repeating: "HTTP/1.1 102 \r\n\r\n", count: Limits.informationalResponses)
        + "HTTP/1.1 204 \r\n\r\n",
      "only :status=204"),
    // Section 7.1: chunks.
    Row("chunks", chunked + "5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", "head :status=200", "body hello!", "end"),
    Row("no chunks", chunked + "0\r\n\r\n", "head :status=200", "end"),
    Row(
      "hexadecimal", chunked + "00000000000000000000a\r\n0123456789\r\nA\r\n0123456789\r\n000\r\n\r\n",
      "head :status=200",
      "body 01234567890123456789", "end"),
    Row(
      "extensions", chunked + "1;a\r\nx\r\n1 ; b = \"c;\t\"\r\ny\r\n0;last\r\n\r\n", "head :status=200",
      "body xy", "end"),
    Row(
      "line ends within chunks", chunked + "4\r\n\r\n0\r\r\n0\r\n\r\n", "head :status=200", "body \r\n0\r",
      "end"),
    Row(
      "blanks behind sizes", chunked + "1 \r\nx\r\n1\t \r\ny\r\n0  \r\n\r\n", "head :status=200", "body xy",
      "end"),
    Row(
      "empty elements", ok + "Transfer-Encoding: , chunked\t,,\r\n\r\n0\r\n\r\n", "head :status=200", "end"),
    Row("CHUNKED", ok + "TRANSFER-ENCODING:\tCHUNKED \r\n\r\n0\r\n\r\n", "head :status=200", "end"),
    // Section 7.1.2: trailers.
    Row(
      "trailers", chunked + "1\r\na\r\n0\r\nX: 1\r\nY:\r\n\r\n", "head :status=200", "body a",
      "trailers x=1 y="),
    Row(
      "folded trailers", chunked + "0\r\nX: 1\r\n 2\r\n\r\n", "head :status=200", "trailers x=1 2"),
    Row(
      "hop-by-hop trailers", chunked + "0\r\nConnection: close\r\nKeep-Alive: 1\r\n\r\n", "head :status=200",
      "end", persists: false),
    Row(
      "a long line", ok + "A: \(String(repeating: "b", count: 900))\r\nContent-Length: 0\r\n\r\n",
      "only :status=200 a=\(String(repeating: "b", count: 900)) content-length=0"),
  ]

  // MARK: Answers with a flaw

  static let long = String(repeating: "x", count: 4 * limit)

  static let flaws: [Row] = [
    Row(.notHTTP, "h"), Row(.notHTTP, "\r"), Row(.notHTTP, "\0"), Row(.notHTTP, "HTTP "), Row(.notHTTP, "I"),
    Row(.notHTTP, "HTTp"),
    Row(.version, "HTTP/2.0 200 OK\r\n"), Row(.version, "HTTP/1 200 OK\r\n"),
    Row(.version, "HTTP/1.x 200 OK\r\n"),
    Row(.version, "HTTP/1.10 200 OK\r\n"), Row(.version, "HTTP/ 1.1 200 OK\r\n"), Row(.version, "HTTP/\r\n"),
    Row(.version, "HTTP/1.1\t200 OK\r\n"), Row(.version, "HTTP/1,1 200 OK\r\n"),
    Row(.status, "HTTP/1.1 \r\n"), Row(.status, "HTTP/1.1  200 OK\r\n"),
    Row(.status, "HTTP/1.1 20 OK\r\n"), Row(.status, "HTTP/1.1 2000 OK\r\n"),
    Row(.status, "HTTP/1.1 +20 OK\r\n"),
    Row(.status, "HTTP/1.1 012 OK\r\n"), Row(.status, "HTTP/1.1 2\u{b2}0 OK\r\n"),
    Row(.status, "HTTP/1.1 200\tOK\r\n"),
    Row(.switching, "HTTP/1.1 101 Switching Protocols\r\n"),
    // Section 2.2: a CR without a LF after it, and a LF without a CR before it.
    Row(.control, "HTTP/1.1 200 O\rK\r\n"), Row(.control, "HTTP/1.1 200 O\0K\r\n"),
    Row(.control, "HTTP/1.1 200 \u{7f}\r\n"),
    Row(.lineEnd, "HTTP/1.1 200 OK\n"), Row(.lineEnd, ok + "A: b\n"), Row(.lineEnd, ok + "\n"),
    Row(.control, ok + "A: b\r\r\n", isField: true), Row(.control, ok + "A: b\rc: d\r\n", isField: true),
    // Sections 5.1 and 5.2; RFC 9110 sections 5.5 and 5.6.2: malformed field lines.
    Row(.folded, ok + " A: b\r\n"),
    Row(.noColon, ok + "A\r\n"), Row(.noColon, ok + "A b\r\n"), Row(.noColon, ok + "HTTP/1.1 200 OK\r\n"),
    Row(.blankBeforeColon, ok + "A : b\r\n"), Row(.blankBeforeColon, ok + "Content-Length\t: 5\r\n"),
    Row(.name, ok + ": b\r\n"), Row(.name, ok + "A b: c\r\n"), Row(.name, ok + "A\0: c\r\n"),
    Row(.name, ok + "(A): c\r\n"),
    Row(.name, ok + "\u{e9}: c\r\n"), Row(.name, ok + ":status: 200\r\n"), Row(.name, ok + "A\r: c\r\n"),
    Row(.name, ok + "A\"B: c\r\n"), Row(.name, ok + "A/B: c\r\n"), Row(.name, ok + "A\u{7f}: c\r\n"),
    Row(.control, ok + "A: \0\r\n", isField: true), Row(.control, ok + "A: b\u{1}c\r\n", isField: true),
    Row(.control, ok + "A: \u{7f}\r\n", isField: true),
    Row(.control, ok + "Connection: close\0\r\n", isField: true),
    Row(.control, ok + "Content-Length: 5\r\r\n", isField: true),
    // RFC 9110 section 8.6.
    Row(.length, ok + "Content-Length:\r\n"), Row(.length, ok + "Content-Length: -1\r\n"),
    Row(.length, ok + "Content-Length: +1\r\n"), Row(.length, ok + "Content-Length: 0x5\r\n"),
    Row(.length, ok + "Content-Length: 5 5\r\n"),
    Row(.length, ok + "Content-Length: 1e3\r\n"), Row(.length, ok + "Content-Length: 5.\r\n"),
    Row(.length, ok + "Content-Length: 9223372036854775808\r\n"),
    Row(.length, ok + "Content-Length: 18446744073709551621\r\n"),
    Row(.length, ok + "Content-Length: 99999999999999999999999999999999999\r\n"),
    Row(.lengthTwice, ok + "Content-Length: 5\r\nContent-Length: 6\r\n"),
    Row(.lengthTwice, ok + "Content-Length: 5, 6\r\n"), Row(.length, ok + "Content-Length: 5,\r\n"),
    Row(.length, ok + "Content-Length: ,5\r\n"),
    Row(.length, ok + "Content-Length: 5\r\nContent-Length:\r\n"),
    // RFC 9112 sections 6.1 and 6.3: an uncertain length of the body.
    Row(.bothLengths, ok + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"),
    Row(.bothLengths, ok + "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n"),
    Row(.coding, ok + "Transfer-Encoding: gzip\r\n"),
    Row(.coding, ok + "Transfer-Encoding: gzip, chunked\r\n"),
    Row(.coding, ok + "Transfer-Encoding: chunked, chunked\r\n"),
    Row(.coding, ok + "Transfer-Encoding: identity\r\n"),
    Row(.coding, ok + "Transfer-Encoding: ,\r\n"), Row(.coding, ok + "Transfer-Encoding: ,gzip\r\n"),
    Row(.coding, ok + "Transfer-Encoding:\r\n"), Row(.coding, ok + "Transfer-Encoding: chunked;a\r\n"),
    Row(.control, ok + "Transfer-Encoding: \u{0b}chunked\r\n", isField: true),
    Row(.coding, ok + "Transfer-Encoding: \"chunked\"\r\n"),
    Row(.codingTwice, ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
    Row(.codingTwice, ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"),
    Row(.codingInOld, "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n"),
    Row(.informational, String(repeating: "HTTP/1.1 100 \r\n\r\n", count: Limits.informationalResponses + 1)),
    Row(.folded, "HTTP/1.1 100 \r\n a\r\n"), Row(.control, "HTTP/1.1 100 \r\nA: \0\r\n", isField: true),
    Row(.control, ok + "A: b\r\n \0\r\n", isField: true), Row(.length, ok + "Content-Length: 1\r\n 0\r\n"),
    // Section 7.1.
    Row(.chunkSize, chunked + "\r\n", "head :status=200"),
    Row(.chunkSize, chunked + "g\r\n", "head :status=200"),
    Row(.chunkSize, chunked + "-1\r\n", "head :status=200"),
    Row(.chunkSize, chunked + "+1\r\n", "head :status=200"),
    Row(.chunkSize, chunked + " 1\r\n", "head :status=200"),
    Row(.chunkSize, chunked + "0x1\r\n", "head :status=200"),
    Row(.chunkSize, chunked + "1 a\r\n", "head :status=200"),
    Row(.chunkSize, chunked + ";a\r\n", "head :status=200"),
    Row(.chunkSize, chunked + "1,\r\n", "head :status=200"),
    Row(.chunkSize, chunked + "1\r2\r\n", "head :status=200"),
    Row(.chunkSize, chunked + "1\0\r\n", "head :status=200"),
    Row(.chunkTooLarge, chunked + "8000000000000000\r\n", "head :status=200"),
    Row(.chunkTooLarge, chunked + "10000000000000005\r\n", "head :status=200"),
    Row(.chunkTooLarge, chunked + String(repeating: "f", count: 50) + "\r\n", "head :status=200"),
    Row(.control, chunked + "1;a\0\r\n", "head :status=200"),
    Row(.control, chunked + "1;a\rb\r\n", "head :status=200"),
    Row(.lineEnd, chunked + "1\n", "head :status=200"), Row(.lineEnd, chunked + "1;a\n", "head :status=200"),
    Row(
      .chunkLineTooLong, chunked + "1;" + String(repeating: "a", count: Limits.chunkLineBytes - 1),
      "head :status=200"),
    Row(
      .chunkLineTooLong, chunked + String(repeating: "0", count: Limits.chunkLineBytes + 1),
      "head :status=200"),
    Row(
      .extensions,
      chunked + String(repeating: "1;\(String(repeating: "a", count: 1000))\r\nx\r\n", count: 16)
        + "1;\(String(repeating: "a", count: 1000))\r\n", "head :status=200", "body xxxxxxxxxxxxxxxx"),
    Row(.chunkEnd, chunked + "1\r\nab", "head :status=200", "body a"),
    Row(.chunkEnd, chunked + "1\r\na\n", "head :status=200", "body a"),
    Row(.chunkEnd, chunked + "1\r\na\ra", "head :status=200", "body a"),
    Row(.framingInTrailers, chunked + "0\r\nContent-Length: 5\r\n", "head :status=200"),
    Row(.framingInTrailers, chunked + "0\r\nTransfer-Encoding: chunked\r\n", "head :status=200"),
    Row(.folded, chunked + "0\r\n a\r\n", "head :status=200"),
    Row(.noColon, chunked + "0\r\nA\r\n", "head :status=200"),
    Row(.lineEnd, chunked + "0\r\n\n", "head :status=200"),
    Row(.name, chunked + "0\r\n: a\r\n", "head :status=200"),
    // The limits on the size of a head, of an informational head, and of trailers.
    Row(.tooLong, "HTTP/1.1 200 " + long.dropLast(12)), Row(.tooLong, ok + "A: " + long.dropLast(2)),
    Row(.tooLong, "HTTP/1.1 100 \r\nA: " + long.dropLast(2)),
    Row(.tooLong, chunked + "0\r\n" + long + "x", "head :status=200"),
  ]
}
