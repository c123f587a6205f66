import PenstockCall
import PenstockWire

/// The client side of Connect's streams ("Streaming RPCs"). Messages are sent in envelopes, which have the
/// form of gRPC's frames. The last envelope has the status as JSON.
final class ConnectStreamFraming: CommonFraming {
  private let labels: RequestLabels?

  private static let endFlag: UInt8 = 0x02

  @inline(never) @_optimize(size)
  init(_ request: Request) {
    labels = request.labels
    super.init(
      request.settings.compression, maxReceiveBytes: request.settings.maxReceiveBytes,
      lastFlag: ConnectStreamFraming.endFlag, timeout: .connectTimeout)
  }

  override var title: StaticString { "Connect" }
  override var encodingName: StaticString { "connect-content-encoding" }
  override var typeStart: StaticString { "application/connect+" }

  @inline(never) @_optimize(size)
  override func addCommon(_ defaults: RequestDefaults, to fields: FieldList) -> Bool {
    addConnect(defaults, "application/connect+proto", accepts: "connect-accept-encoding", to: fields)
  }

  override func isOwn(_ name: ByteView) -> Bool { isConnectField(name) }
  override func code(ofHTTP status: Int) -> StatusCode {
    StatusMapping.fromHTTPStatus(status, isConnect: true)
  }

  @inline(never) @_optimize(size)
  override func responseHeaders(_ block: HeaderBlock, endsStream: Bool) -> ResponseStart {
    start(block.fields, endsStream: endsStream)
  }

  override func fit(_ type: ByteView?) -> ContentType.Fit {
    if labels == nil, let type, bytesEqual(type, "application/connect+proto") { return .fits }
    return ContentType.fit(type, typeStart, labels?.subtype)
  }

  override func status(inHead fields: Metadata, isAll: Bool) -> Status? {
    isAll && httpStatus == 200 ? failure(.body, false) : nil
  }

  @inline(never) @_optimize(size)
  override func lastFrame(_ content: ByteBuffer) -> BodyStep {
    let trailers = Metadata()
    guard let status = ConnectJSON.end(content.view, trailers) else {
      return .failed(Status(.internal, "the end of the stream is malformed JSON"))
    }
    if trailers.listSize > Limits.statusInBodyBytes { return .failed(tooManyTrailers) }
    addAll(trailers, to: status)
    return .trailers(status)
  }

  override func status(_ end: StreamEnd, trailers: consuming Status?, deadlineHasPassed: Bool) -> Status {
    statusInBody(end, trailers, else: nil, deadlineHasPassed)
  }
}

/// The header fields of Connect, for streams and for unary calls.
extension CommonFraming {
  @inline(never) @_optimize(size)
  final func addConnect(
    _ defaults: RequestDefaults, _ type: StaticString, accepts: StaticString, to fields: FieldList
  ) -> Bool {
    addPseudoHeaders("POST", defaults, to: fields)
      && fields.add("connect-protocol-version", "1") && fields.add("content-type", type)
      && fields.add(accepts, "gzip") && fields.add("user-agent", lasting: defaults.userAgent.view)
  }

  /// "Keys beginning with "connect-" are reserved". The header fields for HTTP's own compression are also
  /// reserved.
  @inline(never) @_optimize(size)
  final func isConnectField(_ name: ByteView) -> Bool {
    bytesEqual(name, "content-encoding") || bytesEqual(name, "accept-encoding")
      || bytesEqual(ByteView(rebasing: name.prefix(8)), "connect-")
  }
}
