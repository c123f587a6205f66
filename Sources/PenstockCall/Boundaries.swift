import PenstockWire

// The neighbours of a call (`CallAbove`, `CallBelow`, `CallLoop`) are abstract classes, and not protocols. A
// class instance can be borrowed while one of its functions is called, which costs 2 instructions more than a
// direct call. If the type were a protocol, Swift would retain and release the object around each such call,
// by atomic operations.

/// The reason why an attempt that has been started has to wait.
public enum Lack: UInt8, Equatable, Sendable {
  case nothing
  /// The attempt waits for the addresses of the channel's name.
  case name
  case connection
  /// There is a connection, but its peer allows no more calls at once.
  case slot
  /// There are connections, but the channel's picker, a hop or the request wants an endpoint without one.
  case endpoint
}

/// The layer below the chain: an attempt on a transport stream. Every function runs on the driving thread. No
/// function calls back into the call before it returns: if an event happens at once, the attempt reports it
/// to the call later, in the same turn of the loop.
open class CallBelow {
  public init() {}

  /// Opens the stream with `call.request`.
  open func start(_ call: Call) {}
  /// Opens the stream and sends all of the call: the request, its one message and the half-close.
  open func start(_ call: Call, saying message: Message) {
    start(call)
    if call.wantsMessage { pull() }
    send(message)
    halfClose()
  }
  /// Like `start(_:)`, for a call that may refuse an endpoint: by the wish of its request, or in
  /// `Call.accepts`.
  open func startChoosing(_ call: Call) { start(call) }
  /// The address of the endpoint about which `Call.accepts` asks the hops; with a `name`, the value of this
  /// attribute of the endpoint. Each is followed by a NUL.
  open func offered(_ name: ByteView?) -> ByteBuffer? { nil }
  /// Takes a message. The attempt calls `call.transportSent` when the transport has taken all of it.
  open func send(_ message: Message) {}
  open func halfClose() {}
  /// `call.wantsMessage` may have become true: the attempt delivers the messages that have arrived, one at a time,
  /// while it is true.
  open func pull() {}
  /// Makes a further attempt like this one, for a call that begins again.
  open func another() -> CallBelow { self }
  /// The call has ended above: the attempt frees its stream (RST_STREAM with CANCEL if it is open), and delivers
  /// nothing more.
  open func reset() {}
  /// The thing for which this attempt, which has been started, still waits.
  open var lacks: Lack { .nothing }
}

/// The layer above the chain: the caller. Everything runs on the driving thread.
open class CallAbove {
  public init() {}

  open func callHeaders(_ headers: Metadata) {}
  open func callMessage(_ message: Message) {}
  /// A message has arrived for which the caller has not asked: `call.perform(.demand(1))` fetches it.
  open func callOffersMessage() {}
  open func callSent(_ count: Int) {}
  /// The call has ended. This is the last notice, and comes exactly once.
  open func callStatus(_ status: Status) {}
  /// A cancel or the deadline ends the call: the caller drops the messages that it has not read yet.
  open func callDiscardsMessages() {}
  /// A hop of the call runs its callbacks on this executor. So a thread that alone runs the executor's jobs must not
  /// wait for the call, which may wait for one of these jobs.
  open func callNeeds(_ executor: any Executor) {}
}

/// The properties that the calls of a channel have in common.
public final class CallOrigin {
  /// The channel's target and default authority, each followed by a NUL.
  public let target: ByteBuffer
  public let defaultAuthority: ByteBuffer
  public let privacy: Privacy
  let loop: CallLoop
  /// Tells any thread which callback runs now.
  public let watch: CallWatch

  public init(
    target: ByteBuffer, defaultAuthority: ByteBuffer, privacy: Privacy = .cleartext, loop: CallLoop,
    watch: CallWatch = CallWatch()
  ) {
    self.target = target
    self.defaultAuthority = defaultAuthority
    self.privacy = privacy
    self.loop = loop
    self.watch = watch
  }
}

/// The functions of the loop that a call uses. They run on the driving thread, unless a comment says
/// otherwise.
open class CallLoop {
  public init() {}

  /// Monotonic nanoseconds, as the loop last read them: the time of an event. docs/architecture.md ("Time") says
  /// where `now` is used, and where `clock`.
  open var now: UInt64 { 0 }
  /// Like `now`, but read from the clock itself: for times that a user reads, or from which a user's interval is
  /// counted. Any thread.
  open var clock: UInt64 { now }
  /// Calls `call.deadlinePassed()` at `time`; nil disarms.
  open func setDeadline(_ call: Call, _ time: UInt64?) {}
  /// Resolves `ticket` with NEXT at `time`.
  open func resume(_ ticket: UInt64, of call: Call, at time: UInt64) {}
  /// Issues a ticket for `event`, which a callback of `hop` may pause or hold; `start` is the request that
  /// may be changed while the event waits. 0: there are no more tickets. Called on the driving thread only,
  /// and on any thread once `shareTickets` was called.
  open func issueTicket(_ event: Event, of hop: Hop, start: Request?) -> UInt64 { 0 }
  /// From now on any thread may issue tickets of the call.
  open func shareTickets(of call: Call) {}
  /// The ticket's event does not wait any more: later use of the ticket gives "already".
  open func spendTicket(_ ticket: UInt64, of call: Call) {}
  /// The event was dropped while it waited: later use of its ticket gives "gone".
  open func loseTicket(_ ticket: UInt64, of call: Call) {}
  /// The call has ended: later use of any of its tickets gives "gone".
  open func closeTickets(of call: Call) {}
  /// The call has ended: the loop may keep the call object, and release it when it next has nothing else to do. False:
  /// the loop does not keep it.
  open func keepUntilRest(_ call: Call) -> Bool { false }
  /// Makes the driving thread run `call.runPosted()` soon. Any thread.
  open func post(_ call: Call) {}
  /// Makes the values that the hops of a call share. Any thread.
  open func newValues() -> CallValues { CallValues() }
  /// Whether the loop belongs to a parent of this process. Any thread.
  open var isForked: Bool { false }
  /// Whether this is the driving thread. Any thread.
  open var isDriving: Bool { true }
  /// The number of the calling thread; never 0.
  open var thread: UInt { 1 }
}
