import PenstockCall
import PenstockWire
import PenstockHTTP

/// The common parts of Connect's two framings: those of streams and of unary calls.
class ConnectFraming: CommonFraming {
  final let labels: RequestLabels?

  init(_ request: Request, lastFlag: UInt8 = 0, isPrefixed: Bool = true, opening: Opening = .atOnce) {
    labels = request.labels
    super.init(
      request.settings.compression, request.settings.compressionUse,
      maxReceiveBytes: request.settings.maxReceiveBytes, lastFlag: lastFlag, timeout: .connectTimeout,
      isPrefixed: isPrefixed, opening: opening)
  }

  override var title: StaticString { "Connect" }
  override var subtype: ByteView? { labels?.subtype }

  /// "Keys beginning with "connect-" are reserved". The header fields for HTTP's own compression are also
  /// reserved.
  override func isOwn(_ name: ByteView) -> Bool {
    bytesEqual(name, "content-encoding") || bytesEqual(name, "accept-encoding")
      || bytesEqual(ByteView(rebasing: name.prefix(8)), "connect-")
  }

  override func code(ofHTTP status: Int) -> StatusCode {
    StatusMapping.fromHTTPStatus(status, isConnect: true)
  }

  override func fit(_ type: ByteView?) -> ContentType.Fit {
    ContentType.fit(type, typeStart, subtype)
  }

  /// Adds the fields that all POST requests of a channel have. `type`: the content-type. `accepts`: the name
  /// of the field with the accepted compressions.
  final func addConnect(
    _ defaults: RequestDefaults, _ type: StaticString, accepts: StaticString, to fields: FieldList
  ) -> Bool {
    addPseudoHeaders("POST", defaults, to: fields)
      && fields.add("connect-protocol-version", "1") && fields.add("content-type", type)
      && defaults.addAccepted(accepts, packed: true, to: fields)
      && fields.add("user-agent", lasting: defaults.userAgent.view)
  }
}
