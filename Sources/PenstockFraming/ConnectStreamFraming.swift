import PenstockCall
import PenstockWire
import PenstockHTTP

/// The client side of Connect's streams ("Streaming RPCs"). Messages are sent in envelopes, which have the
/// form of gRPC's frames. The last envelope has the status as JSON.
final class ConnectStreamFraming: ConnectFraming {
  private static let endFlag: UInt8 = 0x02

  init(_ request: Request) {
    super.init(request, lastFlag: ConnectStreamFraming.endFlag)
  }

  override var encodingName: StaticString { "connect-content-encoding" }
  override var typeStart: StaticString { "application/connect+" }

  override func addCommon(_ defaults: RequestDefaults, to fields: FieldList) -> Bool {
    addConnect(defaults, "application/connect+proto", accepts: "connect-accept-encoding", to: fields)
  }

  override func responseHeaders(_ block: HeaderBlock, endsStream: Bool) -> ResponseStart {
    start(block.fields, endsStream: endsStream)
  }

  override func status(inHead fields: Metadata, isAll: Bool) -> Status? {
    isAll && httpStatus == 200 ? failure(.body, false) : nil
  }

  override func lastFrame(_ content: ByteBuffer) -> BodyStep {
    let trailers = Metadata()
    switch ConnectJSON.end(content.view, trailers) {
    case .malformed: return .failed(Status(.internal, "the end of the stream is malformed JSON"))
    case .tooLarge: return .failed(.tooLarge)
    case .status(let status):
      addAll(trailers, to: status)
      return .trailers(status)
    }
  }

  override func status(_ end: StreamEnd, trailers: consuming Status?, deadlineHasPassed: Bool) -> Status {
    statusInBody(end, trailers, else: nil, deadlineHasPassed)
  }
}
