/// The protocol that turns a channel's calls into HTTP messages.
public enum RPCProtocol: UInt8, Sendable {
  case grpc, grpcWeb, grpcWebText, connect

  /// The protocol's name, as channel options and hops show it.
  public var name: StaticString {
    switch self {
    case .grpc: "grpc"
    case .grpcWeb: "grpc-web"
    case .grpcWebText: "grpc-web-text"
    case .connect: "connect"
    }
  }
}

extension RPCProtocol {
  /// Whether the protocol works only over HTTP/2, because it needs its trailers.
  public var needsHTTP2: Bool {
    switch self {
    case .grpc: true
    case .grpcWeb, .grpcWebText, .connect: false
    }
  }

  /// Whether the request should be an HTTP GET. The message is not known yet: if it makes the URL too long,
  /// the request is a POST nevertheless.
  public func wantsGET(_ request: Request) -> Bool { wantsGET(request.kind, request.settings) }

  private func wantsGET(_ kind: CallKind, _ settings: CallSettings) -> Bool {
    switch self {
    case .grpc, .grpcWeb, .grpcWebText: false
    case .connect: kind == .unary && settings.idempotency == .noSideEffects && settings.allowsGET
    }
  }

  /// The HTTP method with which the request was sent last; before it is sent, the one that it should have.
  public func httpMethod(_ kind: CallKind, _ settings: CallSettings) -> StaticString {
    let isGET =
      switch settings.getUse {
      case .allowed: wantsGET(kind, settings)
      case .sent: true
      case .forbidden, .passedOver: false
      }
    return isGET ? "GET" : "POST"
  }
}
