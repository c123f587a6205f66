internal import FoundationEssentials

/// The figures of a call that runs, for observers.
///
/// They come at the end of each call, so they are read straight from the library's text, which is compact JSON of objects,
/// numbers, strings and nulls: a decoder of any JSON takes longer than the call's other callbacks together.
package struct CallFigures: Sendable, Hashable {
  /// The messages and bytes of one direction.
  package struct Traffic: Sendable, Hashable {
    /// How many messages.
    package var messages = 0
    /// The size of the messages before compression.
    package var bytes = 0
    /// The size of the messages after compression.
    package var compressedBytes = 0
  }

  /// How often the request was given to the transport.
  package var attempts = 0
  /// The microseconds since the call's creation.
  package var elapsedMicroseconds = 0
  /// The messages to the server.
  package var sent = Traffic()
  /// The messages from the server.
  package var received = Traffic()
  /// The server's address; nil: there was no connection.
  package var peer: String?

  package init() {}

  /// Reads the text of the library.
  init(json: UnsafePointer<CChar>) {
    var rest = UnsafeRawPointer(json).assumingMemoryBound(to: UInt8.self)
    /// The names of the objects that the reader is inside of.
    var path: [UnsafeBufferPointer<UInt8>] = []
    var name: UnsafeBufferPointer<UInt8>?
    while rest.pointee != 0 {
      let byte = rest.pointee
      switch byte {
      case UInt8(ascii: "{"):
        if let name { path.append(name) }
        name = nil
        rest += 1
      case UInt8(ascii: "}"):
        _ = path.popLast()
        name = nil
        rest += 1
      case UInt8(ascii: "\""):
        let (text, end) = Self.string(at: rest)
        rest = end
        if end.pointee == UInt8(ascii: ":") {
          name = text
          rest += 1
        } else {
          if let name { take(path, name, text) }
          name = nil
        }
      case UInt8(ascii: "0")...UInt8(ascii: "9"):
        var number = 0
        while case let digit = rest.pointee, (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(digit) {
          number = number &* 10 &+ Int(digit - UInt8(ascii: "0"))
          rest += 1
        }
        if let name { take(path, name, number) }
        name = nil
      default: rest += 1
      }
    }
  }

  /// The bytes between the quotes of a string, as they stand there, and the place behind it.
  private static func string(
    at start: UnsafePointer<UInt8>
  ) -> (UnsafeBufferPointer<UInt8>, UnsafePointer<UInt8>) {
    var end = start + 1
    while end.pointee != UInt8(ascii: "\""), end.pointee != 0 {
      if end.pointee == UInt8(ascii: "\\"), end[1] != 0 { end += 1 }
      end += 1
    }
    let text = UnsafeBufferPointer(start: start + 1, count: end - start - 1)
    return (text, end.pointee == 0 ? end : end + 1)
  }

  private mutating func take(
    _ path: [UnsafeBufferPointer<UInt8>], _ name: UnsafeBufferPointer<UInt8>, _ number: Int
  ) {
    switch path.count {
    case 0:
      if name.is("attempts") { attempts = number }
      if name.is("elapsed_us") { elapsedMicroseconds = number }
    case 1:
      if path[0].is("sent") { Self.take(&sent, name, number) }
      if path[0].is("received") { Self.take(&received, name, number) }
    default: break
    }
  }

  private static func take(_ traffic: inout Traffic, _ name: UnsafeBufferPointer<UInt8>, _ number: Int) {
    if name.is("messages") { traffic.messages = number }
    if name.is("bytes") { traffic.bytes = number }
    if name.is("compressed_bytes") { traffic.compressedBytes = number }
  }

  private mutating func take(
    _ path: [UnsafeBufferPointer<UInt8>], _ name: UnsafeBufferPointer<UInt8>,
    _ text: UnsafeBufferPointer<UInt8>
  ) {
    guard path.isEmpty, name.is("peer") else { return }
    guard text.contains(UInt8(ascii: "\\")) else {
      peer = String(decoding: text, as: UTF8.self)
      return
    }
    // The path of a unix socket may have characters that JSON escapes.
    let quoted = Data([UInt8(ascii: "\"")] + text + [UInt8(ascii: "\"")])
    peer = try? JSONDecoder().decode(String.self, from: quoted)
  }
}

extension UnsafeBufferPointer where Element == UInt8 {
  fileprivate func `is`(_ name: StaticString) -> Bool {
    count == name.utf8CodeUnitCount && elementsEqual(UnsafeBufferPointer(start: name.utf8Start, count: count))
  }
}
