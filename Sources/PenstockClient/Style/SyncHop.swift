import CPenstockSystem
import PenstockCall
import PenstockWire
import PenstockLink
import PenstockTransport

/// The handle of the hop that the function of a synchronous interceptor gets. Before `next` the handle is at
/// the start event, after `next` at the response. All functions of the handle work on the function's thread
/// until the function returns. On other threads, or after that, only those functions work that any thread may
/// call with a handle that it keeps.
final class SyncHop: BoundHop, @unchecked Sendable {
  private let thread = cs_thread_self()
  /// The interceptor's state in this call. Only the function's thread uses it. It is nil after the function
  /// has returned, so that a handle that the user keeps does not hold the interceptor.
  private var call: Unmanaged<InterceptedCall>?

  /// Makes the handle. The caller holds a reference to `call` until `close`.
  init(_ call: InterceptedCall) {
    self.call = .passUnretained(call)
    super.init(call.hop)
  }

  /// The borrowed handle for the user's function.
  var pointer: OpaquePointer { OpaquePointer(Unmanaged.passUnretained(self).toOpaque()) }

  func close() { call = nil }

  private var running: InterceptedCall? {
    thread == cs_thread_self() && !hop.isForked ? call?.takeUnretainedValue() : nil
  }

  private var outside: Outcome { refuse(.outsideFunction) }

  override var event: EventKind { running.map { $0.function.isBeforeNext ? .start : .headers } ?? .none }
  override var metadata: Metadata? { running?.metadata }
  override var message: Message? { running?.message }
  override var status: Status? { running?.responseStatus }

  override func setMessage(_ fresh: Message) -> Outcome { running?.replace(fresh) ?? outside }

  override func next() -> Outcome { running?.next() ?? outside }
  override func end(_ status: Status) -> Outcome { running?.cancel(status) ?? hop.finish(status) }
  override func deliver(_ headers: Metadata) -> Outcome { running?.addAnswer(headers) ?? outside }
  override func deliver(_ status: Status) -> Outcome { running?.answer(status) ?? outside }
  /// On the function's thread before `next`, adds the message to the function's own answer. After `next`, in
  /// a call with a response stream, inserts the message into that stream. On another thread, inserts the
  /// message among the server's responses; this is refused while the hop answers the call, or may still do
  /// so.
  override func deliver(_ message: Message) -> Outcome {
    guard let running else { return hop.mayDeliver ? outside : hop.injectInbound(message) }
    let goesOn = running.function.response != nil && !running.kind.receivesOne
    return goesOn ? hop.injectInbound(message) : running.addAnswer(message)
  }

  override var request: Request? { running?.start }
  override var requestMetadata: Metadata? { running?.requestMetadata }
  override func edit(_ change: (Request) -> Outcome) -> Outcome { running?.edit(change) ?? outside }
  override func editRecord(_ edit: (Cut) -> Outcome) -> Outcome { running?.editRecord(edit) ?? outside }
  override func setDeadline(_ time: UInt64?) -> Outcome { running?.setDeadline(time) ?? outside }

  override func setValue(_ key: ByteView, _ value: UserData?) -> Outcome {
    running?.setValue(key, value) ?? outside
  }
  override func value(_ key: ByteView) -> UnsafeMutableRawPointer? { running?.value(key) }
  override var context: UnsafeMutableRawPointer? { running?.context?.pointer }
}
