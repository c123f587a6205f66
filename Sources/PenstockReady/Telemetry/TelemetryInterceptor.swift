import PenstockCall
import PenstockClient
import PenstockLoop
import PenstockTransport
import PenstockWire

/// The object behind the `user_data` of an interceptor that records into a `Telemetry` object. A call has one hop of it
/// above the codec, for the call as a whole, and one for each attempt, below all other hops.
public final class TelemetryInterceptor: ReadyInterceptor {
  private let telemetry: Telemetry

  public init(_ telemetry: Telemetry) {
    self.telemetry = telemetry
    var callbacks = Registration.Callbacks()
    callbacks.create = { handle, userData, out in
      let (hop, this) = behind(handle, userData, TelemetryInterceptor.self)
      guard !Telemetry.isExport(hop.call.request.pathView) else { return Verdict.skip.rawValue }
      return keep(RecordedCall(this.telemetry, hop), out)
    }
    callbacks.onStatus = { handle, state in
      let (hop, recorded) = behind(handle, state, RecordedCall.self)
      recorded.end(hop.status, hop)
      return next
    }
    callbacks.onCancel = { handle, state in
      let (hop, recorded) = behind(handle, state, RecordedCall.self)
      recorded.cancel(hop)
      return next
    }
    callbacks.destroy = { handle, state in
      let (hop, recorded) = behind(handle, state, RecordedCall.self)
      recorded.end(nil, hop)
      forget(state, RecordedCall.self)
    }
    if telemetry.options.spans {
      callbacks.onStart = { handle, state in
        let (hop, recorded) = behind(handle, state, RecordedCall.self)
        recorded.begin(hop)
        return next
      }
      callbacks.onPick = { handle, state in
        let (hop, recorded) = behind(handle, state, RecordedCall.self)
        recorded.notePick(hop)
        return next
      }
    }
    if telemetry.options.spans, telemetry.options.messages {
      callbacks.onSend = { handle, state in
        let (hop, recorded) = behind(handle, state, RecordedCall.self)
        recorded.noteMessage(hop, isSent: true)
        return next
      }
      callbacks.onReceive = { handle, state in
        let (hop, recorded) = behind(handle, state, RecordedCall.self)
        recorded.noteMessage(hop, isSent: false)
        return next
      }
    }
    super.init("telemetry", callbacks, level: .both, isPerAttempt: true)
  }
}

/// A call, or an attempt of it, that is recorded.
private final class RecordedCall {
  private let telemetry: Telemetry
  private let isAttempt: Bool
  /// nil: metrics are not wanted.
  private let method: Int?
  private let startedAt: UInt64
  /// The value of `Process.forks` at the call's begin. A forked child records nothing of the parent's calls: its counts
  /// begin anew, and `method` is an index of the parent's.
  private let forks = Process.forks
  // The number of earlier attempts, as the server is told. It is read in create, on the driving thread: on_start
  // may run elsewhere.
  private let previousAttempts: UInt8
  private let isTransparentRetry: Bool
  // The bytes of messages that earlier attempts of the call have sent and received.
  private let sentBefore: UInt64
  private let receivedBefore: UInt64
  private var isEnded = false
  /// Guards `span`: with executors the two lanes run at the same time.
  private let lock = Lock()
  /// nil: spans are not wanted, or the trace is not sampled.
  private var span: Span?

  init(_ telemetry: Telemetry, _ hop: Hop) {
    self.telemetry = telemetry
    isAttempt = hop.level == .bytes
    previousAttempts = hop.call.request.previousAttempts
    isTransparentRetry = hop.call.request.isTransparentRetry
    sentBefore = hop.call.measures.sent.compressedBytes.value
    receivedBefore = hop.call.measures.received.compressedBytes.value
    // A call that comes to the hop again, because an interceptor above has restarted it, counts from then.
    let created = hop.call.measures.createdAt.value
    startedAt = isAttempt || hop.attempt > 1 ? hop.platform.clock() : created
    guard telemetry.options.metrics else {
      method = nil
      return
    }
    let target = hop.target
    let index = telemetry.method(
      hop.call.request.pathView, ByteView(rebasing: target.view.dropLast()))
    withExtendedLifetime(target) {}
    method = index
    if isAttempt { telemetry.attemptStarted(index) }
  }

  /// Begins the span, and tells those below and the server of it, by "traceparent".
  func begin(_ hop: Hop) {
    guard let metadata = hop.metadata else { return }
    let given = TraceParent(in: metadata)
    if let given, !given.isSampled { return }
    let state = ("tracestate" as StaticString).bytes
    let isKnownState = given != nil && TraceState.isValid(metadata)
    if !isKnownState { _ = metadata.remove(state) }
    let dice = telemetry.dice
    let own = TraceParent(
      high: given?.high ?? dice.rollID(), low: given?.low ?? dice.rollID(), span: dice.rollID(),
      isSampled: given != nil || dice.happens(telemetry.options.sampled))
    guard own.write(to: metadata) else { return own.isSampled ? telemetry.spans.keep(nil) : () }
    guard own.isSampled else { return }
    let age = hop.platform.clock() &- startedAt
    let made = Span(own, parent: given?.span, began: hop.platform.wallClock() &- age, of: hop)
    made.previousAttempts = previousAttempts
    made.isTransparentRetry = isTransparentRetry
    if let index = metadata.index(of: state) {
      made.traceState = ByteBuffer(copying: metadata.value(at: index))
    }
    lock.withLock { span = made }
  }

  func notePick(_ hop: Hop) {
    let peer = hop.picked()
    lock.withLock { span?.peer = peer }
  }

  func noteMessage(_ hop: Hop, isSent: Bool) {
    guard isAttempt, let message = hop.message else { return }
    lock.withLock {
      span?.noteMessage(hop.platform.clock() &- startedAt, UInt64(message.count), isSent: isSent)
    }
  }

  /// An attempt that a hop above has ended has no status of its own: gRFC A66 calls it CANCELLED. The cancel and the
  /// deadline of a call are those of its attempts, too.
  func cancel(_ hop: Hop) {
    let status = hop.status
    end(isAttempt && status?.isLocal != true ? nil : status, hop)
  }

  /// `status`: nil: none has come.
  func end(_ status: Status?, _ hop: Hop) {
    guard !isEnded, forks == Process.forks else { return }
    isEnded = true
    let code = status?.code ?? .cancelled
    let duration = hop.platform.clock() &- startedAt
    if let method, isAttempt {
      let call = hop.call
      telemetry.attemptEnded(
        method, code, duration, sent: call.measures.sent.compressedBytes.value &- sentBefore,
        received: call.measures.received.compressedBytes.value &- receivedBefore)
    } else if let method {
      telemetry.callEnded(method, code, duration)
    }
    // The span is taken away under the lock, because the other lane may note a message meanwhile.
    let made = lock.withLock { () -> Span? in
      defer { span = nil }
      return span
    }
    if let made { telemetry.spans.keep(made.encoded(status, duration, isAttempt: isAttempt)) }
  }
}
