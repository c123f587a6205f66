import PenstockTestCertificates
import Glibc
import PenstockCall
import PenstockChannel
import PenstockWire

import PenstockTestSupport

@testable import PenstockClient
@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop
@testable import PenstockTransport

/// A runtime and a channel for tests. Calls are made with the functions that the C ABI uses.
final class TestClient {
  let runtime: ClientRuntime
  let channel: ClientChannel
  /// Keeps the objects that record callbacks until the runtime has shut down, which may call them.
  private var told: [Told] = []

  convenience init?(
    _ target: String, mode: Runtime.Mode = .thread,
    options change: (inout ChannelOptions) -> Void = { _ in }
  ) {
    var options = ChannelOptions()
    options.tls = nil
    change(&options)
    self.init(target, mode: mode) { runtime in
      let name = bytes(target)
      guard case .made(let channel) = Channel.make(runtime: runtime, target: name.view, options: options)
      else { return nil }
      return channel
    }
  }

  /// Makes a client with the channel that `make` returns.
  init?(
    _ target: String, mode: Runtime.Mode = .thread, platform: Platform = Platform(),
    make: (Runtime) -> Channel?
  ) {
    var settings = Runtime.Options()
    settings.mode = mode
    guard case .made(let runtime) = ClientRuntime.make(settings, platform) else { return nil }
    let loop = runtime.loopForChannel()
    guard let transport = make(loop.runtime) else { return nil }
    let name = bytes(target)
    let authority = ByteBuffer(copying: transport.defaultAuthority)!
    self.runtime = runtime
    runtime.addUser()
    channel = ClientChannel(
      runtime, loop, transport, target: terminated(name), authority: terminated(authority),
      defaults: CallDefaults(),
      newestFirst: false)
  }

  deinit {
    _ = channel.close()
    _ = runtime.shutdown(timeoutMilliseconds: 10_000)
    runtime.removeUser()
  }

  /// Makes a call. With `told` it is in callback style, and `told` records the callbacks.
  func make(
    _ path: String, _ kind: CallKind, told: Told? = nil, _ change: (CallOptions) -> Void = { _ in }
  ) -> ClientCall {
    let options = CallOptions()
    options.hasDeadline = true
    // The deadline ends a call that would otherwise wait for ever.
    options.deadline = 600_000_000_000
    change(options)
    if let told { self.told.append(told) }
    let name = bytes(path)
    let (outcome, call) = ClientCall.make(channel, name.view, kind, options, told?.callbacks)
    guard outcome == .ok, let call else { fatalError("\(outcome)") }
    return call.takeRetainedValue()
  }

  /// In host mode: runs one turn of the loop, for the work that is ready now.
  func turn() { _ = runtime.runtime.poll(timeoutMilliseconds: 0) }

  /// In host mode: runs turns of the loop until no work is left.
  func settle() {
    repeat { turn() } while isReadable(runtime.runtime.pollableFD)
  }

  func unary(_ path: String, _ message: [UInt8], _ change: (CallOptions) -> Void = { _ in }) -> Answer {
    let call = make(path, .unary, change)
    let (outcome, reply) = call.unary(.passRetained(buffer(message)), nil)
    guard outcome == .ok, let reply else { fatalError("\(outcome)") }
    return Answer(reply.takeRetainedValue())
  }
}

/// Records the callbacks of a call in callback style. The call's `TestClient` keeps the object.
final class Told {
  /// The sizes in bytes of the messages that the call has received.
  var messages: [Int] = []
  var code: StatusCode?

  var callbacks: CallCallbacks {
    var callbacks = CallCallbacks(Unmanaged.passUnretained(self).toOpaque(), nil)
    callbacks.table.onMessage = { _, message, told in
      let size = Unmanaged<Message>.fromOpaque(UnsafeRawPointer(message!)).takeUnretainedValue().count
      Unmanaged<Told>.fromOpaque(told!).takeUnretainedValue().messages.append(size)
    }
    callbacks.table.onReply = { _, reply, told in
      let status = Unmanaged<Reply>.fromOpaque(UnsafeRawPointer(reply!)).takeUnretainedValue().status
      Unmanaged<Told>.fromOpaque(told!).takeUnretainedValue().code = status.code
    }
    return callbacks
  }
}

/// The parts of a reply that tests compare.
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

  /// The text without its last part, which has the changing time of the next attempt to connect.
  var cause: String {
    guard let time = words.firstRange(of: "; next attempt in ") else { return words }
    return String(words[..<time.lowerBound])
  }

  func header(_ name: String) -> [UInt8]? { reply.headers.flatMap { value($0, name) } }
  func trailer(_ name: String) -> [UInt8]? { value(reply.status.trailers, name) }
}

func value(_ metadata: Metadata, _ name: String) -> [UInt8]? {
  let name = bytes(name)
  return metadata.index(of: name.view).map { [UInt8](metadata.value(at: $0)) }
}

func terminated(_ buffer: ByteBuffer) -> ByteBuffer {
  let copy = ByteBuffer(copying: buffer.view)!
  _ = copy.append(byte: 0)
  return copy
}

/// Makes the TLS configuration of a test server.
func serverTLS(_ change: (inout TLSOptions) -> Void = { _ in }) -> TLSContext? {
  guard
    case .made(let context) = TLSContext.make(
      role: .server, options: Certificates.shared.server(change: change))
  else { return nil }
  return context
}

extension ClientCall {
  /// Begins a unary call with `message`, like `unary`, but does not wait for the end of the call.
  func open(_ message: Message) {
    prepare(message)
    driver._withUnsafeGuaranteedRef { runtime in call.withItem { _ = runtime.post($0) } }
  }
}
