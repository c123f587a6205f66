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
