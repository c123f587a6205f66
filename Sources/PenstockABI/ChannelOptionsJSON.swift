import PenstockCall
import PenstockTransport
import PenstockWire

/// The "options" of channel.h, as Options.swift reads them.
struct ParsedChannelOptions {
  var transport = ChannelOptions()
  var defaults = CallDefaults()
  var newestFirst = false

  enum Made {
    case success(ClientChannel)
    case failure(Failure)
  }

  /// The channel, which takes over one user of `runtime`; with a failure it does not.
  func channel(_ runtime: ClientRuntime, _ target: ByteView) -> Made {
    var options = transport
    options.version = Version.bytes
    switch Channel.make(runtime: runtime.runtime, target: target, options: options) {
    case .failed(let failure): return .failure(explain(failure))
    case .made(let channel):
      guard let name = ByteBuffer(copying: target), name.append(byte: 0),
        let authority = ByteBuffer(copying: channel.defaultAuthority), authority.append(byte: 0)
      else { return .failure(Failure(.noMemory, "no memory")) }
      return .success(
        ClientChannel(
          runtime, channel, target: name, authority: authority, defaults: defaults, newestFirst: newestFirst))
    }
  }

  /// A target that does not parse is an argument; what TLS refuses stands in the options.
  private func explain(_ failure: SetupFailure) -> Failure {
    switch failure.kind {
    case .memory: return Failure(.noMemory, failure.text.view)
    case .system: return Failure(.system, failure.text.view)
    case .option: break
    }
    let field = failure.field
    if bytesEqual(field.bytes, "target") { return Failure(.invalidArgument, failure.text.view) }
    let path = ByteBuffer()
    _ = path.append("$.tls")
    if field.utf8CodeUnitCount > 0 {
      _ = path.append(".")
      _ = path.append(field)
    }
    return Failure(.invalidJSON, path.view, (": " as StaticString).bytes, failure.text.view, path: path)
  }
}
