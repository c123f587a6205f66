import PenstockWire
import PenstockHTTP

/// Makes the headers and trailers of the answer.
extension Call {
  /// Adds the header fields for compression. `used`: the name of the field with the answer's compression.
  /// `accepted`: the name of the field with the compressions that the server accepts. No field is added if
  /// neither side may compress.
  func addCodings(to list: FieldList, _ used: StaticString, _ accepted: StaticString) {
    guard knobs.compresses || requestCoding != .identity || mayCompress else { return }
    if clientTakesGzip && (knobs.compresses || mayCompress) { list.add(used, "gzip") }
    list.add(accepted, "identity,gzip")
  }

  func addHeaders(to list: FieldList) {
    if method == .cacheableUnary { list.add("cache-control", "max-age=60, public") }
    guard knobs.echoesFields else { return }
    eachField { name, value in
      if bytesEqual(name, "x-grpc-test-echo-initial") || hasPrefix(name, "x-headers") {
        list.add(name, value)
      }
    }
  }

  /// Adds gRPC's status and the trailing metadata to `list`.
  func addTrailers(to list: FieldList) {
    let code = status ?? 2
    if code == 0 {
      list.add("grpc-status", "0")
    } else {
      list.add("grpc-status", Text().put(code))
    }
    if !statusMessage.isEmpty {
      let encoded = Text()
      if PercentCoding.encode(statusMessage.view, into: encoded) { list.add("grpc-message", encoded) }
    }
    if knobs.hasMessage && knobs.status != nil {
      eachField { name, value in
        if bytesEqual(name, "x-details-bin") { list.add("grpc-status-details-bin", value) }
      }
    }
    addTrailingMetadata(to: list)
  }

  func addTrailingMetadata(to list: FieldList) {
    if knobs.echoesFields {
      eachField { name, value in
        if bytesEqual(name, "x-grpc-test-echo-trailing-bin") || hasPrefix(name, "x-trailers") {
          list.add(name, value)
        }
      }
    }
    guard knobs.echoesMetadata else { return }
    eachField { name, value in
      list.add(prefix: "seen-", name.first == 0x3A ? part(name, 1, name.count) : name, value)
    }
  }

  /// Writes a line of JSON about the call to stdout (`--print-requests`).
  func report() {
    let line = Console.out.line
    line.put("{\"connection\":").put(session?.number ?? 0).put(",\"stream\":").put(Int(id))
    eachField { name, value in
      if bytesEqual(name, ":path") { line.put(",\"path\":").put(json: value) }
    }
    line.put(",\"protocol\":\"").put(protocolName).put("\",\"http\":\"").put(session?.version ?? "")
    line.put("\",\"method\":")
    var verb: ByteView = ("" as StaticString).bytes
    eachField { name, value in if bytesEqual(name, ":method") { verb = value } }
    line.put(json: verb)
    line.put(",\"messages_in\":").put(messagesIn).put(",\"messages_out\":").put(messagesOut)
    if let status { line.put(",\"status\":").put(status) }
    line.put(",\"http2_error\":").put(Int(closeCode)).put("}\n")
  }
}
