import Glibc
import PenstockCall
import PenstockWire

@testable import PenstockTransport

/// A channel with calls on it, as the ABI has them.
final class TestClient {
  let runtime: ClientRuntime
  let channel: ClientChannel

  init?(_ target: String, options change: (inout ChannelOptions) -> Void = { _ in }) {
    guard case .made(let runtime) = ClientRuntime.make(Runtime.Options()) else { return nil }
    var options = ChannelOptions()
    options.tls = nil
    change(&options)
    let name = bytes(target)
    guard
      case .made(let transport) = Channel.make(runtime: runtime.runtime, target: name.view, options: options)
    else { return nil }
    let authority = ByteBuffer(copying: transport.defaultAuthority)!
    self.runtime = runtime
    runtime.addUser()
    channel = ClientChannel(
      runtime, transport, target: terminated(name), authority: terminated(authority),
      defaults: CallDefaults(),
      newestFirst: false)
  }

  deinit {
    _ = channel.close()
    _ = runtime.shutdown(timeoutMilliseconds: 10_000)
    runtime.removeUser()
  }

  func make(_ path: String, _ kind: CallKind, _ change: (CallOptions) -> Void = { _ in }) -> ClientCall {
    let options = CallOptions()
    options.hasDeadline = true
    // No test waits for ever.
    options.deadline = 30_000_000_000
    change(options)
    let name = bytes(path)
    let (outcome, call) = ClientCall.make(channel, name.view, kind, options, nil)
    guard outcome == .ok, let call else { fatalError("\(outcome)") }
    return call.takeRetainedValue()
  }

  func unary(_ path: String, _ message: [UInt8], _ change: (CallOptions) -> Void = { _ in }) -> Answer {
    let call = make(path, .unary, change)
    let (outcome, reply) = call.unary(.passRetained(buffer(message)), nil)
    guard outcome == .ok, let reply else { fatalError("\(outcome)") }
    return Answer(reply.takeRetainedValue())
  }
}

/// A reply as a test compares it.
struct Answer {
  let code: StatusCode
  let words: String
  let message: [UInt8]?
  let reply: Reply

  init(_ reply: Reply) {
    self.reply = reply
    code = reply.status.code
    words = text(reply.status.message)!
    message = reply.message.map { [UInt8]($0.view) }
  }

  func header(_ name: String) -> [UInt8]? { reply.headers.flatMap { value($0, name) } }
  func trailer(_ name: String) -> [UInt8]? { value(reply.status.trailers, name) }
}

func value(_ metadata: Metadata, _ name: String) -> [UInt8]? {
  let name = bytes(name)
  return metadata.index(of: name.view).map { [UInt8](metadata.value(at: $0)) }
}

func buffer(_ bytes: [UInt8]) -> ByteBuffer { bytes.withUnsafeBytes { ByteBuffer(copying: $0)! } }

func terminated(_ buffer: ByteBuffer) -> ByteBuffer {
  let copy = ByteBuffer(copying: buffer.view)!
  _ = copy.append(byte: 0)
  return copy
}

/// What a server needs for TLS.
func serverTLS(_ change: (inout TLSOptions) -> Void = { _ in }) -> TLSContext? {
  guard
    case .made(let context) = TLSContext.make(
      role: .server, options: Certificates.shared.server(change: change))
  else { return nil }
  return context
}

extension ClientCall {
  /// A unary call, as `unary` begins it, with nobody who waits yet.
  func open(_ message: Message) {
    prepare(message)
    driver._withUnsafeGuaranteedRef { runtime in call.withItem { _ = runtime.post($0) } }
  }
}
