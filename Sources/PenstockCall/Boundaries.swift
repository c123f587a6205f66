import PenstockWire

/// What stands below the chain: an attempt on a transport stream. Everything runs on the driving thread;
/// nothing here calls back into the call before it has returned (what happens at once is told in the same
/// loop turn, later).
public protocol CallBelow: AnyObject {
  /// Opens the stream with `call.request`.
  func start(_ call: Call)
  /// The same with all that the call has to say: its one message, then the half-close.
  func start(_ call: Call, saying message: Message)
  /// Takes a message; `call.transportSent` tells when the transport has taken it whole.
  func send(_ message: Message)
  func halfClose()
  /// `call.wantsMessage` may have become true: deliver what is there, one at a time, asking again after each.
  func pull()
  /// A fresh attempt like this one: for a call that begins again.
  func another() -> any CallBelow
  /// The call ended above: free the stream (RST_STREAM CANCEL if it is open). Nothing inbound may follow.
  func reset()
  /// It has been started, and waits for a connection.
  var isConnecting: Bool { get }
}

extension CallBelow {
  public var isConnecting: Bool { false }

  public func start(_ call: Call, saying message: Message) {
    start(call)
    if call.wantsMessage { pull() }
    send(message)
    halfClose()
  }
}

/// What stands above the chain: the caller. Everything runs on the driving thread.
///
/// A class, and no protocol, so that it can be told without a reference being counted.
open class CallAbove {
  public init() {}

  open func callHeaders(_ headers: Metadata) {}
  open func callMessage(_ message: Message) {}
  /// Another message is there that has not been asked for: `call.perform(.demand(1))` has it.
  open func callOffersMessage() {}
  open func callSent(_ count: Int) {}
  /// The end: exactly once, last.
  open func callStatus(_ status: Status) {}
  /// A local end discards what the caller has not read yet.
  open func callDiscardsMessages() {}
  /// A hop of the call runs its callbacks there: the call does not end before it has.
  open func callNeeds(_ executor: any Executor) {}
}

/// What the calls of a channel have in common.
public final class CallOrigin {
  /// The channel's target and default authority, each followed by a NUL.
  public let target: ByteBuffer
  public let defaultAuthority: ByteBuffer
  public let privacy: Privacy
  let loop: any CallLoop
  /// Where callbacks are shown while they run.
  public let watch: CallWatch

  public init(
    target: ByteBuffer, defaultAuthority: ByteBuffer, privacy: Privacy = .cleartext, loop: any CallLoop,
    watch: CallWatch = CallWatch()
  ) {
    self.target = target
    self.defaultAuthority = defaultAuthority
    self.privacy = privacy
    self.loop = loop
    self.watch = watch
  }
}

/// Any thread: tickets of one call.
public protocol TicketIssuer: AnyObject {
  /// For an event that a callback may pause or hold; `start` are the metadata of a start.
  func issue(_ event: Event, start: Metadata?) -> UInt64
}

/// What a call needs from the loop. Everything runs on the driving thread, unless it says otherwise.
public protocol CallLoop: AnyObject {
  /// Monotonic nanoseconds, as the loop has read them last: what happened. docs/architecture.md says which is read where.
  var now: UInt64 { get }
  /// Like `now`, but read from the clock itself: users count from it. Any thread.
  var clock: UInt64 { get }
  /// Calls `call.deadlinePassed()` at `time`; nil disarms.
  func setDeadline(_ call: Call, _ time: UInt64?)
  /// Resolves `ticket` with NEXT at `time`.
  func resume(_ ticket: UInt64, of call: Call, at time: UInt64)
  /// A ticket for `event`, which a callback of `hop` may pause or hold. 0: no memory.
  func issueTicket(_ event: Event, of hop: Hop) -> UInt64
  /// What issues tickets of the call on any thread; nil: no memory.
  func tickets(of call: Call) -> (any TicketIssuer)?
  /// The event went on without it: later use gives "already".
  func spendTicket(_ ticket: UInt64, of call: Call)
  /// The event was overtaken: later use gives "gone".
  func loseTicket(_ ticket: UInt64, of call: Call)
  /// The call has ended: later use of any of its tickets gives "gone".
  func closeTickets(of call: Call)
  /// The call has ended: keeps it until there is time to let it go. False: it does not.
  func keepUntilRest(_ call: Call) -> Bool
  /// Any thread: runs `call.runPosted()` on the driving thread soon.
  func post(_ call: Call)
  /// Any thread: for what the hops of a call share.
  func newValues() -> CallValues
  /// Any thread: does the loop belong to a parent of this process.
  var isForked: Bool { get }
  /// Any thread: is this the driving thread.
  var isDriving: Bool { get }
  /// The calling thread; never 0.
  var thread: UInt { get }
}
