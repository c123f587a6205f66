import PenstockCall
import PenstockLink
import PenstockLoop
import PenstockTransport
import PenstockWire

// A form is posted as a call without interceptors, so that none of them sees the secrets in it.

extension ClientChannel {
  /// Monotonic nanoseconds, by the clock of the channel's loop.
  public var clock: UInt64 { loop.runtime.clock }

  /// How private the channel is.
  public var privacy: Privacy { origin.privacy }
}

extension ClientCall {
  /// Posts `form`, which is encoded already, to `path` on the channel. `path`: that of a URL, followed by a NUL. `timeout`: in
  /// nanoseconds; nil: that of the channel's calls. `most`: the most bytes that the answer may have. The callbacks
  /// get the reply: `FormFraming` says what it has. Any thread. If the outcome is not `.ok`, the callbacks are released.
  public static func post(
    _ form: ByteBuffer, to path: ByteBuffer, _ metadata: Metadata, timeout: UInt64?, most: Int,
    on channel: ClientChannel, _ callbacks: CallCallbacks
  ) -> Outcome {
    guard channel.isOpen else { return .closed }
    guard let type = RequestLabels.contentType(("x-www-form-urlencoded" as StaticString).bytes) else {
      return .noMemory
    }
    let options = CallOptions()
    guard options.metadata.append(contentsOf: metadata) else { return .noMemory }
    let labels = RequestLabels(authority: nil, contentType: type, userAgent: nil, isForm: true)
    options.labels = labels
    options.compression = .identity
    options.maxReceiveBytes = most
    options.traceEvents = 0
    if let timeout {
      options.hasDeadline = true
      options.deadline = timeout
    }
    let (outcome, made) = make(channel, path, .unary, options, callbacks, nil)
    guard let made else { return outcome }
    let call = made.takeUnretainedValue()
    call.call.request.labels = labels
    // The channel's codec is for the messages of RPCs.
    call.call.codec = nil
    call.open(saying: form)
    // A call in callback style goes on without a handle.
    if call.releaseHandle() { made.release() }
    return .ok
  }
}
