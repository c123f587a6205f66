/// The query of a Connect GET, which contains the request message (Connect, "Query-Get").
public enum ConnectQuery {
  public enum Outcome {
    /// The query was written. `message`: the size in bytes of the message in the query.
    case written(message: Int)
    case tooLong
    case noMemory
  }

  /// Appends the query to `out`. The parameters are in the order of "Query-Get", "to maximize hit rates on
  /// shared caches". `encoding`: the name of the message's encoding; nil: "proto". `most`: the most bytes of
  /// the query.
  public static func write(
    _ message: ByteView, encoding: ByteView?, compression: Compression, most: Int, into out: ByteBuffer
  ) -> Outcome {
    if message.count > most { return .tooLong }
    let name = encoding ?? ("proto" as StaticString).bytes
    // "Any encoding that uses binary data (such as proto) should use base64 encoding."
    let isBinary = compression != .identity || bytesEqual(name, "proto") || !UTF8Repair.isValid(message)
    let start = out.count
    guard out.append("?connect=v1"), !isBinary || out.append("&base64=1"),
      compression == .identity || (out.append("&compression=") && out.append(compression.name)),
      out.append("&encoding="), out.append(name),
      out.append("&message=")
    else { return .noMemory }
    let before = out.count
    guard
      isBinary ? Base64.encodeForURL(message, into: out) : PercentCoding.encodeForURL(message, into: out)
    else { return .noMemory }
    return out.count - start > most ? .tooLong : .written(message: out.count - before)
  }
}
