#if Observability
  import FoundationEssentials

  /// Bytes as base64.
  func base64(_ bytes: [UInt8]) -> String { Data(bytes).base64EncodedString() }

  /// The bytes of base64, with or without padding; nil: it is none.
  func bytes(base64 text: String) -> [UInt8]? {
    let padding = String(repeating: "=", count: (4 - text.utf8.count % 4) % 4)
    return Data(base64Encoded: text + padding).map { [UInt8]($0) }
  }
#endif
