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
  /// Whether the request should be an HTTP GET. The decision is made before the message is known: if the
  /// message makes the URL too long, the request becomes a POST.
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
