import PenstockWire
import Synchronization

/// One interceptor in one call. All members belong to the driving thread, unless a comment says otherwise. A
/// pointer to this object is the handle that callbacks get. A user may retain the hop for longer than the
/// call lives; the hop then keeps the call in memory. A hop that is not retained is used again by a later
/// call with the same chain (`HopRow`).
///
/// While a hop is in the run (the top hops, which count together), events do not touch the hop's members,
/// unless a callback uses the handle (`Call+Run`).
public final class Hop: HopHandle {
  let row: HopRow
  /// The registration. The call's chain owns it until the call ends: a hop that a user retains for longer
  /// does not keep the interceptor.
  private let registrationReference: Unmanaged<Registration>
  /// The registration's callbacks. They live as long as the registration, and are read for every event
  /// without touching its reference count.
  let callbacks: UnsafePointer<Registration.Callbacks>
  var state: UnsafeMutableRawPointer?
  /// The callback that runs now; `.none` if none runs, or if only the call notes it (`Run.event`).
  var running = EventKind.none
  var life = Life.waiting
  /// The raw value of the hop's `Face`: the part of its state that any thread may read.
  let face = Atomic<UInt8>(Face.asRun.rawValue)
  /// The raw value of the hop's `Answer`: the events that it has delivered as its own answer. Any thread may
  /// read it.
  let answer = Atomic<UInt8>(Answer.nothing.rawValue)
  /// The raw value of the hop's `Deed`: its last act that limits the next ones. Any thread may read it.
  let deed = Atomic<UInt8>(Deed.none.rawValue)
  /// The raw value of the hop's `Fate`: who decides how its part in the call ends. Any thread may read it.
  let fate = Atomic<UInt8>(Fate.open.rawValue)
  /// Whether other threads may have the hop, and so may deliver messages through it. Such a message uses up
  /// demand in `sharedOwed`.
  private(set) var isShared = false
  /// Notes that somebody keeps a reference to the hop, which another thread may release. No later call then
  /// uses the hops of this call again. Called in a callback, or while a ticket is open.
  public func lend() { row.isSpent.store(true, ordering: .relaxed) }
  /// The ticket that the running callback has taken; 0: none.
  var ticket: UInt64 = 0
  var count = 0
  var finishRequest: Status?

  public let index: Int
  /// The number of the attempt: 1 at first, and one more each time the call is sent again from above the hop.
  public let attempt: UInt32
  public let level: Level

  // `owed`: demand from above that no message has answered yet. `reserved`: the part of `owed` that is set
  // aside for injected messages that have not left yet. `earlyDemand`: the hop's own demand before start has
  // left it. `inFlight`: messages that have left downward and are not yet reported as `sent`.
  var owed = 0
  var reserved = 0
  var earlyDemand = 0
  /// The number of messages that were asked for below beyond the demand from above. There are two causes: an
  /// injected message answers demand that was also passed on below, and a held message makes the hop ask for
  /// another. The next demand that goes down is reduced by the surplus. Otherwise each such message would
  /// leave one more message waiting here until the call's end.
  var surplus = 0
  var inFlight = 0
  /// For each message in flight, in order: whether its `sent` stops at this hop. nil: no such message is in
  /// flight.
  var ledger: Fifo<Bool>?
  /// `ownInFlight`: the number of messages in flight whose `sent` stops at this hop. `untold`: the number of
  /// held messages that the hops above have not been told `sent` for; one of them is told each time a `sent`
  /// stops here.
  private(set) var ownInFlight = 0
  private(set) var untold = 0
  /// The part of `owed` that is not reserved. Other threads use it up with messages that they inject, once
  /// they share the hop.
  let sharedOwed = Atomic<Int>(0)
  /// The number of messages of the hop's own answer that have not left it, and their bytes. Up to hold_bytes
  /// of them may wait for demand. Any thread.
  let answersWaiting = Atomic<Int>(0)
  let answerBytes = Atomic<Int>(0)
  private let answerLimit: Int
  /// Events that the hop has delivered as its answer before it returns TAKE.
  var earlyAnswers: [Event] = []

  /// The hop's record of events for a RESTART; nil: the hop may not RESTART.
  private(set) var cut: Cut?

  /// The queues for the callbacks that run on executors; nil: the hop has chosen no executors.
  private var queues: HopQueues?
  /// The address of `queues`, for other threads.
  private let seenQueues = Atomic<UnsafeMutableRawPointer?>(nil)

  var outbound: Station?
  var inbound: Station?

  convenience init(_ row: HopRow, _ index: Int, _ entry: Chain.Entry) {
    self.init(row, index, entry.level, entry.registration, attempt: 1)
  }

  /// Makes the hop that replaces `old` when the call is sent again from above it.
  convenience init(again old: Hop) {
    let attempt = old.attempt == .max ? .max : old.attempt &+ 1
    self.init(old.row, old.index, old.level, old.registration, attempt: attempt)
  }

  private init(_ row: HopRow, _ index: Int, _ level: Level, _ registration: Registration, attempt: UInt32) {
    self.row = row
    self.index = index
    self.level = level
    self.attempt = attempt
    registrationReference = .passUnretained(registration)
    answerLimit = registration.holdBytes
    callbacks = UnsafePointer(registration.callbacks)
    super.init()
    begin()
  }

  /// Prepares the hop for a call. Called while the registration still exists.
  func begin() {
    registrationReference._withUnsafeGuaranteedRef {
      state = $0.userData.pointer
      if $0.records(at: level) { cut = Cut(limit: $0.replayBytes) }
      if $0.hasExecutors { setExecutors($0.outboundExecutor, $0.inboundExecutor) }
    }
  }

  /// Resets all members to their values before `begin`.
  func renew() {
    renewInRun()
    face.store(Face.asRun.rawValue, ordering: .relaxed)
    ticket = 0
    count = 0
    finishRequest = nil
    isShared = false
    sharedOwed.store(0, ordering: .relaxed)
    owed = 0
    reserved = 0
    earlyDemand = 0
    surplus = 0
    inFlight = 0
    ledger = nil
    ownInFlight = 0
    untold = 0
    forgetAnswers()
    deed.store(Deed.none.rawValue, ordering: .relaxed)
    cut = nil
    if queues != nil {
      queues = nil
      seenQueues.store(nil, ordering: .relaxed)
    }
    outbound = nil
    inbound = nil
  }

  /// Does the work of `renew` for a hop that was in the `Run` to the call's end: no other member of it has
  /// changed.
  func renewInRun() {
    answer.store(Answer.nothing.rawValue, ordering: .relaxed)
    deed.store(Deed.none.rawValue, ordering: .relaxed)
    refusal.store(Refusal.none.rawValue, ordering: .relaxed)
    fate.store(Fate.open.rawValue, ordering: .relaxed)
    life = .waiting
  }
  /// Sets the state back to the registration's user data, which `create` has replaced.
  func resetState() { state = registrationReference._withUnsafeGuaranteedRef { $0.userData.pointer } }

  public var call: Call { row.call }

  /// Whether the hop may answer RESTART, so that its events are recorded. Any thread, until the call has
  /// ended.
  var records: Bool { registrationReference._withUnsafeGuaranteedRef { $0.records(at: level) } }

  /// The registration. Its use is allowed only until the call has ended.
  var registration: Registration { registrationReference.takeUnretainedValue() }
  /// The registration's number, read without counting a reference.
  var registrationID: UInt64 { registrationReference._withUnsafeGuaranteedRef { $0.id } }

  /// The callback that runs now, also while the hop is in the `Run`, when only the call knows it.
  var current: EventKind { running == .none ? call.callbackInRun(index) : running }

  /// Sets the hop's executors for the outbound and the inbound lane. Called in `create`.
  func choose(_ outbound: (any Executor)?, _ inbound: (any Executor)?) {
    call.splitRun(at: index)
    setExecutors(outbound, inbound)
  }

  private func setExecutors(_ outbound: (any Executor)?, _ inbound: (any Executor)?) {
    let fresh = HopQueues(outbound, inbound, after: queues)
    queues = fresh
    seenQueues.store(Unmanaged.passUnretained(fresh).toOpaque(), ordering: .releasing)
  }

  /// Whether `create` has chosen executors. Both queues may be nil, if it has chosen the driving thread for
  /// both lanes.
  var hasExecutors: Bool { queues != nil }
  // nil: the callbacks of that lane run on the driving thread.
  var outboundJobs: JobQueue? { queues?.outbound }
  var inboundJobs: JobQueue? { queues?.inbound }
  func jobs(_ lane: Lane) -> JobQueue? { lane == .outbound ? outboundJobs : inboundJobs }
  /// The queue for `destroy` and for the callback at the call's end (on_status or on_cancel); nil: they run
  /// on the driving thread.
  var lastJobs: JobQueue? { inboundJobs ?? outboundJobs }
  /// The job that the calling thread runs at present, if it is a job of this hop; otherwise nil. Any thread.
  var job: Job? {
    seenQueues.load(ordering: .acquiring).flatMap { runningJob($0) }
  }

  private func runningJob(_ seen: UnsafeMutableRawPointer) -> Job? {
    let thread = call.withLoop { $0.thread }
    return Unmanaged<HopQueues>.fromOpaque(seen)._withUnsafeGuaranteedRef {
      $0.outbound?.job(on: thread) ?? $0.inbound?.job(on: thread)
    }
  }

  /// The hop's handle for C, which does not own the hop. `Hop.from` turns it back into the hop.
  var handle: OpaquePointer { OpaquePointer(Unmanaged.passUnretained(self).toOpaque()) }

  func invoke(_ callback: HopCallback, _ kind: EventKind) -> Int32 {
    running = kind
    ticket = 0
    call.watch.begin(call.id, kind, of: registrationID)
    let began = call.callbackBegins
    let verdict =
      call.trace == nil ? callback(handle, state) : runTraced(kind) { callback(handle, state) }
    call.watch.end()
    call.callbackEnded(began, kind, of: registrationID)
    running = .none
    return verdict
  }

  /// The events that wait at the hop in this lane, without making a `Station` for them; nil: none waits.
  func standing(_ lane: Lane) -> Station? { lane == .outbound ? outbound : inbound }

  func clear(_ lane: Lane) { if lane == .outbound { outbound = nil } else { inbound = nil } }

  /// Returns the ticket that the callback has taken, for the event that now waits with it; 0: none.
  func takeOverTicket() -> UInt64 {
    defer { ticket = 0 }
    return ticket
  }

  func station(_ lane: Lane) -> Station {
    switch lane {
    case .outbound:
      if let outbound { return outbound }
      let fresh = Station()
      outbound = fresh
      return fresh
    case .inbound:
      if let inbound { return inbound }
      let fresh = Station()
      inbound = fresh
      return fresh
    }
  }

  /// Adds demand for `n` messages from above (invariant I9).
  func addOwed(_ n: Int) {
    owed = saturatingSum(owed, n)
    guard isShared else { return }
    var seen = sharedOwed.load(ordering: .acquiring)
    while true {
      let (done, now) = sharedOwed.weakCompareExchange(
        expected: seen, desired: saturatingSum(seen, n), ordering: .acquiringAndReleasing)
      if done { return }
      seen = now
    }
  }

  /// Counts a message that leaves upward and answers demand for one. `prepaid`: the message was injected, and
  /// has reserved this demand before (invariant I9).
  func spendOwed(prepaid: Bool) {
    owed = owed > 0 ? owed - 1 : 0
    if prepaid {
      reserved -= 1
    } else if isShared {
      sharedOwed.wrappingSubtract(1, ordering: .acquiringAndReleasing)
    }
  }

  /// Reserves demand for an injected message. There may be none yet; then the next demand is for this message.
  func reserve() {
    reserved += 1
    if isShared { sharedOwed.wrappingSubtract(1, ordering: .acquiringAndReleasing) }
  }

  /// Gives back the demand that an injected message has reserved, because the message was dropped before it
  /// left.
  func unreserve() {
    reserved -= 1
    if isShared { sharedOwed.wrappingAdd(1, ordering: .acquiringAndReleasing) }
  }

  /// `noteAsked` counts demand for `n` messages that leaves downward; `noteAnswered` counts a message that
  /// has come for it.
  func noteAsked(_ n: Int) {
    if let cut { cut.unanswered = saturatingSum(cut.unanswered, n) }
  }
  func noteAnswered() {
    if let cut, cut.unanswered > 0 { cut.unanswered -= 1 }
  }

  /// Deducts the surplus from demand for `n` messages. Returns the demand that still has to go down.
  func lessSurplus(_ n: Int) -> Int {
    let spent = min(surplus, n)
    surplus -= spent
    return n - spent
  }

  /// Reserves room for a message of the hop's own answer, which waits at the hop until the caller asks for
  /// it. Returns false if there is no room: one message always has room. Any thread.
  func takeRoom(_ message: Message) -> Bool {
    let size = message.room
    // A message that was asked for already always has room. A refused message is never counted, not even for
    // a moment: otherwise a message of another thread might be refused because of it.
    var waiting = answersWaiting.load(ordering: .acquiring)
    while waiting < sharedOwed.load(ordering: .acquiring) {
      let (done, now) = answersWaiting.weakCompareExchange(
        expected: waiting, desired: waiting + 1, ordering: .acquiringAndReleasing)
      if done {
        answerBytes.wrappingAdd(size, ordering: .acquiringAndReleasing)
        return true
      }
      waiting = now
    }
    var seen = answerBytes.load(ordering: .acquiring)
    while seen == 0 || size <= answerLimit && seen <= answerLimit - size {
      let (done, now) = answerBytes.weakCompareExchange(
        expected: seen, desired: seen + size, ordering: .acquiringAndReleasing)
      if done {
        answersWaiting.wrappingAdd(1, ordering: .acquiringAndReleasing)
        return true
      }
      seen = now
    }
    return false
  }

  func answerPassed(_ message: Message) {
    answersWaiting.wrappingSubtract(1, ordering: .acquiringAndReleasing)
    answerBytes.wrappingSubtract(message.room, ordering: .acquiringAndReleasing)
  }

  /// Drops the answer that the hop has delivered so far, because the hop has not returned TAKE.
  func forgetAnswers() {
    if !earlyAnswers.isEmpty { earlyAnswers = [] }
    answersWaiting.store(0, ordering: .relaxed)
    answerBytes.store(0, ordering: .relaxed)
  }

  /// Allows other threads to deliver messages through the hop from now on.
  func share() {
    // After the hop's end nothing can be shared, and the call's hops must not be touched.
    guard !isShared, !isOver else { return }
    call.splitRun(at: index)
    isShared = true
    row.retained = call
    sharedOwed.store(owed - reserved, ordering: .releasing)
  }

  /// Counts a message that leaves downward (invariant I10). `isOwn`: its `sent` stops at this hop.
  func countInFlight(isOwn: Bool) {
    if isOwn, ledger == nil {
      var fresh = Fifo<Bool>()
      for _ in 0..<inFlight { fresh.append(false) }
      ledger = fresh
    }
    ledger?.append(isOwn)
    inFlight += 1
    if isOwn { ownInFlight += 1 }
  }

  /// Decides when `sent` is told for a message that the hop begins to hold. True: now, so that the sender
  /// sends the next one. False: when an earlier message that was also told early has been taken below.
  /// Without this limit a sender above a hop that holds each message for a while could have any number of
  /// messages in flight.
  func tellsHeld() -> Bool {
    if ownInFlight == untold { return true }
    untold += 1
    return false
  }

  /// Counts `n` messages that were taken below. Returns two numbers: for `passed` messages this hop and the
  /// hops above are told `sent`; for `held` further messages only the hops above are told.
  func countSent(_ n: Int) -> (passed: Int, held: Int) {
    inFlight -= n
    guard ledger != nil else { return (n, 0) }
    var passed = 0
    for _ in 0..<n where ledger?.popFirst() == false { passed += 1 }
    if ledger?.isEmpty == true { ledger = nil }
    let held = min(n - passed, untold)
    ownInFlight -= n - passed
    untold -= held
    return (passed, held)
  }
}

/// The sum of two numbers, limited to the range of `Int`, because a user may give any number.
func saturatingSum(_ a: Int, _ b: Int) -> Int {
  let (sum, overflow) = a.addingReportingOverflow(b)
  return overflow ? (b < 0 ? Int.min : Int.max) : sum
}
