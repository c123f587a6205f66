import PenstockCall
import PenstockWire

@testable import PenstockTransport
@testable import PenstockHTTP

// Fuzzes the parser of HTTP/1.1 answers. The input is all bytes that a server sends on one connection. The
// parser must not trap, and must find the same answers for any size of the pieces in which the bytes arrive.

/// The results of parsing all answers in `input`, as numbers: they must not depend on the size of the pieces.
private func parse(_ input: ByteView, piece: Int) -> [Int] {
  let parser = ResponseParser(maxHeaderList: 1024)
  var log: [Int] = []
  var body = 0
  var at = 0
  parser.begin()
  while at < input.count {
    let end = min(input.count, at + piece)
    // The bytes are copied, so that the sanitizer finds a read beyond the end of a piece.
    let copy = [UInt8](input[at..<end])
    var isAtEnd = false
    copy.withUnsafeBytes { bytes in
      var from = 0
      while !isAtEnd {
        let (count, event) = parser.push(ByteView(rebasing: bytes[from...]))
        from += count
        switch event {
        case .needsMore:
          precondition(from == bytes.count)
          isAtEnd = true
        case .head(let endsAnswer):
          precondition(parser.hasBegun && parser.block.status >= 200 && parser.block.status < 1000)
          log += [parser.block.status, parser.block.size, parser.persists ? 1 : 0, endsAnswer ? 1 : 0]
          check(parser.block)
        case .body(let part):
          precondition(!part.isEmpty)
          body += part.count
        case .trailers:
          log += [body, parser.block.size]
          check(parser.block)
          body = 0
          parser.begin()
        case .end:
          log += [body]
          body = 0
          // The bytes after the end of an answer are parsed as another answer.
          parser.begin()
          if from == bytes.count { isAtEnd = true }
        case .failed(let flaw):
          precondition(!parser.words(flaw).isEmpty)
          log += [body, ResponseFlaw.allCases.firstIndex(of: flaw)!]
          at = input.count
          isAtEnd = true
        }
      }
    }
    at = max(at, end)
  }
  if parser.connectionEnded() { log += [body] }
  return log
}

/// Checks a block: names are in lower case, and no field concerns only the connection.
private func check(_ block: HeaderBlock) {
  let fields = block.fields
  for index in 0..<fields.count {
    precondition(!bytesEqual(fields.name(at: index), "connection"))
    precondition(!bytesEqual(fields.name(at: index), "transfer-encoding"))
    for byte in fields.name(at: index) {
      precondition(byte > 0x20 && byte < 0x7F && !(0x41...0x5A).contains(byte))
    }
    for byte in fields.value(at: index) { precondition(byte >= 0x20 || byte == 9) }
  }
}

/// Fuzzes the parser. The first byte of the input is the size of the pieces.
func fuzzHTTP1(_ all: ByteView) {
  guard let first = all.first else { return }
  let input = ByteView(rebasing: all[1...])
  let whole = parse(input, piece: .max >> 1)
  precondition(parse(input, piece: 1) == whole)
  precondition(parse(input, piece: Int(first) + 1) == whole)
}
