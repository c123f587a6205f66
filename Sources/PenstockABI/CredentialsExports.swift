public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockClient
import PenstockLoop
import PenstockReady
import PenstockWire

// The functions of credentials.h.

@_cdecl("penstock_ready_jwt") @implementation
public func penstock_ready_jwt(
  _ json: UnsafePointer<CChar>!, _ table: UnsafeMutablePointer<penstock_interceptor>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  make(json, table, error, SignedToken.Options(), read) { SignedToken.interceptor($0) }
}

@_cdecl("penstock_ready_oauth2") @implementation
public func penstock_ready_oauth2(
  _ json: UnsafePointer<CChar>!, _ server: OpaquePointer!,
  _ table: UnsafeMutablePointer<penstock_interceptor>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let server else { return report(.invalidArgument, "server must not be NULL", error) }
  let channel = object(server, ClientChannel.self)
  if Process.isForked(channel.generation) {
    return report(.forked, "the channel belongs to the parent of this process", error)
  }
  let readAll = { (reader: JSONReader, options: inout TokenExchange.Options) -> Failure? in
    if let failure = read(reader, into: &options) { return failure }
    guard channel.privacy == .cleartext, !options.bearer.allowsCleartext else { return nil }
    return Failure(
      .invalidArgument, "the channel to the token server has no TLS (see \"allow_cleartext\")")
  }
  return make(json, table, error, TokenExchange.Options(), readAll) {
    TokenExchange.interceptor($0, channel)
  }
}
