import PenstockJSON
import PenstockCall
import PenstockChannel
import PenstockTransport
import PenstockWire
import PenstockLink
import PenstockClient

extension ParsedChannelOptions {
  enum Made {
    case success(ClientChannel)
    case failure(Failure)
  }

  /// Makes the channel. The channel takes over one use of `runtime`, which the caller has counted; on failure
  /// the use stays with the caller.
  func channel(_ runtime: ClientRuntime, _ target: ByteView) -> Made {
    var options = transport
    options.version = Version.bytes
    let loop = runtime.loopForChannel()
    switch Channel.make(runtime: loop.runtime, target: target, options: options) {
    case .failed(let failure):
      loop.hasOneChannelLess()
      return .failure(explain(failure, "$.tls", .invalidJSON))
    case .made(let channel):
      guard let name = ByteBuffer(copying: target), name.append(byte: 0),
        let authority = ByteBuffer(copying: channel.defaultAuthority), authority.append(byte: 0)
      else {
        loop.hasOneChannelLess()
        return .failure(Failure(.noMemory, "no memory"))
      }
      return .success(
        ClientChannel(
          runtime, loop, channel, target: name, authority: authority, defaults: defaults,
          newestFirst: newestFirst,
          teller: { tell($0, to: $1, of: $2) }))
    }
  }
}

/// Turns the failure of a channel's setup into the failure of an exported function. A target that does not
/// parse is a wrong argument. TLS settings that are refused give `outcome`, and the message names the setting
/// by its path below `root`. `root` is the path of "tls" in the options, or "" if the settings are arguments.
func explain(_ failure: SetupFailure, _ root: StaticString, _ outcome: Outcome) -> Failure {
  switch failure.kind {
  case .memory: return Failure(.noMemory, failure.text.view)
  case .system: return Failure(.system, failure.text.view)
  case .option: break
  }
  let field = failure.field
  if bytesEqual(field.bytes, "target") || bytesEqual(field.bytes, "proxy") {
    return Failure(.invalidArgument, failure.text.view)
  }
  let path = ByteBuffer()
  _ = path.append(root)
  if root.utf8CodeUnitCount > 0, field.utf8CodeUnitCount > 0 { _ = path.append(".") }
  _ = path.append(field)
  return Failure(
    outcome, path.view, (": " as StaticString).bytes, failure.text.view,
    path: outcome == .invalidJSON ? path : nil)
}
