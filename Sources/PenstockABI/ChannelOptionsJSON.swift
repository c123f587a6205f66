import PenstockCall
import PenstockTransport
import PenstockWire

/// The "options" of channel.h.
struct ParsedChannelOptions {
  private var transport = ChannelOptions()
  private var defaults = CallDefaults()
  private var newestFirst = false

  enum Made {
    case success(ClientChannel)
    case failure(Failure)
  }

  @inline(never) @_optimize(size)
  mutating func read(_ reader: JSONReader) -> Failure? {
    reader.members { key, member in
      if bytesEqual(key, "tls") { return readTLS(member) }
      if bytesEqual(key, "authority") { return readAuthority(member) { transport.authority = $0 } }
      if bytesEqual(key, "user_agent") { return readUserAgent(member) }
      if bytesEqual(key, "default_deadline_ms") { return readDeadline(member) { defaults.deadline = $0 } }
      if bytesEqual(key, "max_receive_message_bytes") {
        return readLimit(member) { defaults.maxReceiveBytes = $0 }
      }
      if bytesEqual(key, "max_send_message_bytes") { return readLimit(member) { defaults.maxSendBytes = $0 } }
      if bytesEqual(key, "compression") { return readCompression(member) { defaults.compression = $0 } }
      if bytesEqual(key, "max_header_list_bytes") {
        return member.int(1024...1 << 20, "an integer from 1024 to 1048576") {
          transport.maxHeaderListBytes = $0
        }
      }
      if bytesEqual(key, "connect_timeout_ms") {
        return member.int(1...86_400_000, "an integer from 1 to 86400000") {
          transport.connectTimeout = UInt64($0) * 1_000_000
        }
      }
      if bytesEqual(key, "initial_stream_window_bytes") {
        return readWindow(member) { transport.initialStreamWindow = $0 }
      }
      if bytesEqual(key, "initial_connection_window_bytes") {
        return readWindow(member) { transport.initialConnectionWindow = $0 }
      }
      if bytesEqual(key, "trace") { return readTrace(member) { defaults.traceEvents = $0 } }
      if bytesEqual(key, "tie_order") {
        guard let order = member.string, bytesEqual(order, "fifo") || bytesEqual(order, "lifo") else {
          return member.fail("\"fifo\" or \"lifo\"")
        }
        newestFirst = bytesEqual(order, "lifo")
        return nil
      }
      return member.unknown
    }
  }

  /// RFC 9113 section 6.9.2: a window is at most 2^31 - 1.
  private func readWindow(_ member: JSONReader, _ into: (Int) -> Void) -> Failure? {
    member.int(65535...Int(Int32.max), "an integer from 65535 to 2147483647", into)
  }

  private mutating func readUserAgent(_ member: JSONReader) -> Failure? {
    guard let text = member.string, HeaderRules.isValidASCIIValue(text) else {
      return member.fail("visible ASCII, without a space at its ends")
    }
    return member.string { transport.userAgent = $0 }
  }

  @inline(never) @_optimize(size)
  private mutating func readTLS(_ reader: JSONReader) -> Failure? {
    if !reader.isObject {
      return reader.bool { transport.tls = $0 ? TLSOptions() : nil }
    }
    var tls = TLSOptions()
    let failure = reader.members { key, member in
      if bytesEqual(key, "roots_pem") { return member.string { tls.roots = .pem($0) } }
      if bytesEqual(key, "roots_file") { return member.string { tls.roots = .file($0) } }
      if bytesEqual(key, "certificate_chain_pem") { return member.string { tls.certificateChain = .pem($0) } }
      if bytesEqual(key, "certificate_chain_file") {
        return member.string { tls.certificateChain = .file($0) }
      }
      if bytesEqual(key, "private_key_pem") { return member.string { tls.privateKey = .pem($0) } }
      if bytesEqual(key, "private_key_file") { return member.string { tls.privateKey = .file($0) } }
      if bytesEqual(key, "server_name") { return member.string { tls.serverName = $0 } }
      if bytesEqual(key, "verify") { return member.bool { tls.verifiesPeer = $0 } }
      return member.unknown
    }
    transport.tls = tls
    return failure
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
