import PenstockWire

// The neighbours of a call (`CallAbove`, `CallBelow`, `CallLoop`) are abstract classes, and not protocols. A
// class instance can be borrowed while one of its functions is called, which costs 2 instructions more than a
// direct call. If the type were a protocol, Swift would retain and release the object around each such call,
// by atomic operations.

/// The kind of thing that a started attempt still waits for.
public enum Lack: UInt8, Equatable, Sendable {
  case nothing
  /// The attempt waits for the addresses of the target's name.
  case name
  case connection
  /// There is a connection, but its peer allows no more calls at once.
  case slot
  /// There are connections, but the channel's picker, a hop or the request wants an endpoint that has no
  /// connection.
  case endpoint
}

/// The layer below the chain: one attempt, which sends the call on a transport stream. Every function runs on
/// the driving thread. No function calls back into the call before it returns: if an event happens at once,
/// the attempt reports it to the call later, in the same turn of the loop.
open class CallBelow {
  public init() {}

  /// Opens the transport stream and sends the headers of `call.request`.
  open func start(_ call: Call) { mustOverride(()) }
  /// Opens the transport stream and sends the whole call at once: the request headers, `message` as the only
  /// message, and the half-close.
  open func start(_ call: Call, saying message: Message) {
    start(call)
    if call.wantsMessage { pull() }
    send(message)
    halfClose()
  }
  /// Starts the attempt, as `start(_:)` does, but the call may refuse the picked endpoint: the request asks
  /// for an endpoint with an attribute, or a hop decides in `Call.accepts`. By default the attempt knows no endpoints, so
  /// there is nothing to refuse.
  open func startChoosing(_ call: Call) { start(call) }
  /// The endpoint that the hops may read while `Call.accepts` asks them about the picked endpoint. If `name` is nil, this
  /// is the endpoint's address; otherwise it is the value of the endpoint's attribute of this name. The bytes
  /// end with a NUL. nil by default, as outside of `Call.accepts`.
  open func offered(_ name: ByteView?) -> ByteBuffer? { nil }
  /// Sends a message. The attempt calls `call.transportSent` when the transport has taken all of its bytes.
  open func send(_ message: Message) { mustOverride(()) }
  open func halfClose() { mustOverride(()) }
  /// The call tells the attempt that `call.wantsMessage` may have become true. The attempt delivers the
  /// messages that have arrived, one at a time, as long as `call.wantsMessage` is true.
  open func pull() { mustOverride(()) }
  /// A thread waits for a message of a bidi call that has not half-closed. If the attempt's stream is
  /// half-duplex (no message arrives before the half-close), the attempt ends the call. By default streams are duplex, and
  /// nothing is done.
  open func awaited() {}
  /// Makes the next attempt, with the options of this one, for a call that is sent again. `isRepeat`: the server has
  /// certainly not processed this attempt, and the library repeats it by itself. Otherwise a hop or a retry policy
  /// sends the request again, and the attempt is treated as that of a new call.
  open func another(isRepeat: Bool) -> CallBelow { mustOverride(self) }
  /// How long the call should wait, in nanoseconds, before its request is sent again by the retry policy of its method;
  /// nil: it is not sent again. This attempt has ended with `status`. `count` then includes the further attempt.
  open func waitToRetry(after status: Status, of call: Call, _ count: inout RetryCount) -> UInt64? {
    mustOverride(nil)
  }
  /// The call has ended, so the attempt frees its stream (it sends RST_STREAM with CANCEL if the stream is
  /// open), and delivers nothing more.
  open func reset() { mustOverride(()) }
  /// The kind of thing that the attempt still waits for after its start. By default its stream opens at once.
  open var lacks: Lack { .nothing }
  /// Appends in words what the attempt waits for. `holder` says the kind: name, connection, slot, endpoint or server.
  /// By default there are no words.
  open func sayWait(for holder: Holder, _ text: ByteBuffer) {}
}

/// The layer above the chain: the caller. Everything runs on the driving thread.
open class CallAbove {
  public init() {}

  open func callHeaders(_ headers: Metadata) { mustOverride(()) }
  open func callMessage(_ message: Message) { mustOverride(()) }
  /// A message has arrived before the caller has asked for one; `call.perform(.demand(1))` fetches the
  /// message. By default the message waits until the caller asks.
  open func callOffersMessage() {}
  open func callSent(_ count: Int) { mustOverride(()) }
  /// The call has ended with `status`. The call tells its caller this exactly once, and nothing afterwards.
  open func callStatus(_ status: Status) { mustOverride(()) }
  /// A cancel or the deadline ends the call: the caller's side drops the messages that the program has not
  /// read yet.
  open func callDiscardsMessages() { mustOverride(()) }
  /// Reports that a hop of the call runs its callbacks on `executor`. A thread that alone runs the executor's
  /// jobs must not wait for the call, because the call may wait for one of these jobs. By default no thread waits.
  open func callNeeds(_ executor: any Executor) {}
  /// The stream of this bidi call is half-duplex. From now on the caller tells the attempt when a thread waits
  /// (`CallBelow.awaited`). By default nothing is told: no thread waits.
  open func callTakesTurns() {}
  /// A message has come before the half-close of a call that takes turns. False: the call has to end, because it needs
  /// both directions at the same time; so it is by default.
  open func callTakesEarlyMessage() -> Bool { false }
}

/// The properties that the calls of a channel have in common.
public final class CallOrigin {
  /// The channel's target and default authority, each followed by a NUL.
  public let target: ByteBuffer
  public let defaultAuthority: ByteBuffer
  public let privacy: Privacy
  public let rpc: RPCProtocol
  /// The most bytes of the path and query of a GET request, without the prefix of the channel's target.
  public let mostQueryBytes: Int
  let loop: CallLoop
  let replays: ReplayBudget
  /// Records which callback runs now. Any thread may read the record.
  public let watch: CallWatch
  let times: CallbackTimes

  public init(
    target: ByteBuffer, defaultAuthority: ByteBuffer, privacy: Privacy = .cleartext, rpc: RPCProtocol = .grpc,
    mostQueryBytes: Int = 0, loop: CallLoop, replays: ReplayBudget = ReplayBudget(),
    watch: CallWatch = CallWatch(), times: CallbackTimes = CallbackTimes(limit: .max)
  ) {
    self.target = target
    self.defaultAuthority = defaultAuthority
    self.privacy = privacy
    self.rpc = rpc
    self.mostQueryBytes = mostQueryBytes
    self.loop = loop
    self.replays = replays
    self.watch = watch
    self.times = times
  }
}

/// The functions of the loop that a call uses. They run on the driving thread, unless a comment says
/// otherwise.
open class CallLoop {
  public init() {}

  /// The time of the current event: monotonic nanoseconds, which the loop reads once a turn.
  /// docs/architecture.md ("Time") says where `now` is used, and where `clock`.
  open var now: UInt64 { mustOverride(0) }
  /// Monotonic nanoseconds, read from the clock at this moment: for times that a user reads, or from which a
  /// user's interval is counted. Any thread. By default the clock stands still during a turn.
  open var clock: UInt64 { now }
  /// Sets the loop's timer to call `call.deadlinePassed()` at `time`; nil removes the timer.
  open func setDeadline(_ call: Call, _ time: UInt64?) { mustOverride(()) }
  /// Sets a timer that resolves `ticket` with the verdict NEXT at `time`.
  open func resume(_ ticket: UInt64, of call: Call, at time: UInt64) { mustOverride(()) }
  /// Sets a timer that carries `input` out at `time`, unless the call has ended before.
  open func perform(_ input: Call.Input, of call: Call, at time: UInt64) { mustOverride(()) }
  /// Issues a ticket for `event`, which a callback of `hop` may pause or hold. `start` is the request that
  /// the ticket's owner may change while the event waits. Returns 0 if there are no more tickets. Called on
  /// the driving thread only, and on any thread once `shareTickets` was called.
  open func issueTicket(_ event: Event, of hop: Hop, start: Request?) -> UInt64 { mustOverride(0) }
  /// Allows any thread to issue tickets of the call from now on. By default nothing changes: all run on one thread.
  open func shareTickets(of call: Call) {}
  /// Marks the ticket as used, because its event does not wait any more: a later use of the ticket gives
  /// "already".
  open func spendTicket(_ ticket: UInt64, of call: Call) { mustOverride(()) }
  /// Marks the ticket as gone, because its event was dropped while it waited: a later use of the ticket gives
  /// "gone".
  open func loseTicket(_ ticket: UInt64, of call: Call) { mustOverride(()) }
  /// The room that the message of a ticket's event takes now. The ticket's owner may replace the message at the
  /// same time: by default it does not, because all run on one thread.
  open func room(of message: Message, of call: Call) -> Int { message.room }
  /// Marks all tickets of the call as gone, because the call has ended: a later use of one gives "gone".
  open func closeTickets(of call: Call) { mustOverride(()) }
  /// Offers the ended call to the loop, which may keep the object and release it when the loop has nothing
  /// else to do. Returns false if the loop does not keep it, as by default.
  open func releaseAtRest(_ call: Call) -> Bool { false }
  /// Makes the driving thread run `call.runPosted()` soon. Any thread.
  open func post(_ call: Call) { mustOverride(()) }
  /// Makes the values that the hops of a call share. Any thread. By default all hops run on one thread.
  open func newValues() -> CallValues { CallValues() }
  /// Whether the loop belongs to a parent of this process, because this process is a forked child. Any
  /// thread. By default it does not.
  open var isForked: Bool { false }
  /// Whether the calling thread is the driving thread. Any thread.
  open var isDriving: Bool { mustOverride(true) }
  /// A number that identifies the calling thread; never 0.
  open var thread: UInt { mustOverride(1) }
}
