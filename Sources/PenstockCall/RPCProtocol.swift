/// The protocol by which a channel's calls become HTTP messages.
public enum RPCProtocol: UInt8, Sendable {
  case grpc, grpcWeb, grpcWebText, connect

  /// The protocol's name in options, and for hops.
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
  /// Whether the request should be an HTTP GET. The message is not known yet: if it makes the URL too long,
  /// the request is a POST nevertheless.
  @inline(never) @_optimize(size)
  public func wantsGET(_ request: Request) -> Bool {
    switch self {
    case .grpc, .grpcWeb, .grpcWebText: return false
    case .connect:
      let settings = request.settings
      return request.kind == .unary && settings.idempotency == .noSideEffects && settings.allowsGET
    }
  }
}
