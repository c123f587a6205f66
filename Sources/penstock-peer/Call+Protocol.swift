import PenstockWire

/// Finds the protocol of a request, if it is not gRPC.
extension Call {
  /// The name of the messages' encoding, such as "proto"; empty: the request does not name it.
  var subtype: ByteView { subtypeName.view }
  var protocolName: StaticString { isRefused ? "none" : framing.name }

  func nameCodec(_ name: ByteView) {
    subtypeName.put(name)
    codec = Codec(name)
  }

  private func choose(_ wire: RPCWire, _ subtype: ByteView) {
    self.wire = wire
    nameCodec(subtype)
    switch wire {
    case .grpc, .none: break
    case .web: framing = WebServerFraming(isText: false)
    case .webText:
      framing = WebServerFraming(isText: true)
      text = TextInput()
    case .connectStream: framing = ConnectStreamFraming()
    case .connectUnary, .connectGet: framing = ConnectUnaryFraming()
    }
  }

  private func cutQuery(_ path: ByteView) {
    method = Method(path: session?.options.withoutPrefix(cut(path, before: "?")) ?? path)
  }

  /// Forgets the header fields that only gRPC uses, because they have no meaning in Connect.
  func forgetGRPCHeaders() {
    timeout = nil
    requestCoding = .identity
    clientTakesGzip = false
  }

  /// The request's query; empty if there is none.
  var query: ByteView {
    var found = ByteView(start: nil, count: 0)
    eachField { name, value in
      if bytesEqual(name, ":path"), let mark = value.firstIndex(of: 0x3F) {
        found = part(value, mark + 1, value.count)
      }
    }
    return found
  }

  /// Whether Connect's errors, and the last envelope of its streams, are compressed.
  var compressesAnswer: Bool { knobs.compresses && clientTakesGzip }

  /// Finds the protocol of a request that is not gRPC, and sets the framing. False: no protocol fits, and the
  /// request was refused.
  func negotiate() -> Bool {
    var verb = ByteView(start: nil, count: 0)
    var type = ByteView(start: nil, count: 0)
    eachField { name, value in
      if bytesEqual(name, ":method") { verb = value }
      if bytesEqual(name, "content-type") { type = value }
      if bytesEqual(name, ":path"), value.contains(0x3F) { self.cutQuery(value) }
    }
    if bytesEqual(verb, "GET") {
      guard let encoding = Query.value(query, "encoding") else {
        return method == .unknownService || method == .unknownMethod ? refuse("404") : refuse("415")
      }
      if !method.takesGet && !method.isUnknown { return refuse("405") }
      choose(.connectGet, encoding)
    } else if bytesEqual(verb, "POST") {
      let (wire, subtype) = RPCWire.of(contentType: type)
      choose(wire, subtype)
    } else {
      return refuse("405")
    }
    let fits: Bool
    switch wire {
    case .none, .grpc: fits = false
    case .web, .webText: fits = true
    case .connectStream: fits = !method.isUnary && codecFits
    case .connectUnary, .connectGet: fits = (method.isUnary || method.isUnknown) && codecFits
    }
    return fits || refuse("415")
  }

  private var codecFits: Bool { codec != .other || method.takesAnyBytes || method.isUnknown }

  /// Answers with only an HTTP status. "gRPC servers SHOULD respond with HTTP status of 415" (gRPC over
  /// HTTP2, "Requests", Content-Type). Connect requires this, and a field Accept-Post with the supported
  /// content-types.
  @discardableResult
  func refuse(_ httpStatus: StaticString) -> Bool {
    guard let session else { return false }
    session.fields.clear()
    session.fields.add(":status", httpStatus)
    if bytesEqual(httpStatus.bytes, "405") {
      session.fields.add("allow", method.takesGet ? "GET, POST" : "POST")
    }
    if bytesEqual(httpStatus.bytes, "415") {
      session.fields.add(
        "accept-post",
        Text(method.isUnary ? "application/json, application/proto" : "application/connect+json, ")
          .put(method.isUnary ? "" : "application/connect+proto")
          .put(", application/grpc, application/grpc-web, application/grpc-web-text"))
    }
    status = Int(StatusCode.unknown.rawValue)
    isRefused = true
    isSubmitted = true
    trailersAreSubmitted = true
    session.respond(self, hasBody: false)
    return false
  }
}
