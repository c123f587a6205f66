import PenstockCall
import PenstockWire
import PenstockHTTP

/// The client side of gRPC over HTTP/2. It implements gRPC's documents "gRPC over HTTP2" (PROTOCOL-HTTP2),
/// "HTTP to gRPC Status Code Mapping" and "gRPC Compression".
final class GRPCFraming: CommonFraming {
  @inline(__always)
  init(compression: Compression, _ use: CompressionUse = .whereSmaller, maxReceiveBytes: Int) {
    super.init(compression, use, maxReceiveBytes: maxReceiveBytes)
  }

  override func addCommon(_ defaults: RequestDefaults, to fields: FieldList) -> Bool {
    addPseudoHeaders("POST", defaults, to: fields)
      && fields.add("te", "trailers") && fields.add("content-type", "application/grpc")
      && defaults.addAccepted("grpc-accept-encoding", to: fields)
      && fields.add("user-agent", lasting: defaults.userAgent.view)
  }

  override func responseHeaders(_ block: HeaderBlock, endsStream: Bool) -> ResponseStart {
    if block.isPlainHead, !endsStream {
      httpStatus = 200
      return .headers(.none)
    }
    return start(block.fields, endsStream: endsStream)
  }

  override func fit(_ type: ByteView?) -> ContentType.Fit {
    ContentType.classify(type) == .grpc ? .fits : .foreign
  }

  override func isUsual(_ type: ByteView) -> Bool { bytesEqual(type, "application/grpc") }

  override func status(ofTrailers block: HeaderBlock) -> Status? {
    block.isPlainTrailers ? Status(.ok) : grpcStatus(of: block.fields)
  }
}
