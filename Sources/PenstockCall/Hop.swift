import PenstockWire
import Synchronization

/// One interceptor in one call. Everything here belongs to the driving thread, unless its comment says
/// otherwise. The handle that callbacks get is this object. A user may retain the hop longer than the call
/// lives: the hop then keeps the call in memory. A hop that is not retained is used again by a later call
/// with the same chain: see `HopRow`.
///
/// While a hop is in the run, events touch nothing of it, unless a callback uses the handle: see `Call+Run`.
public final class Hop: HopHandle {
  let row: HopRow
  /// The registration. The call's chain owns it until the call ends: a hop that is retained longer does not keep the
  /// interceptor.
  private let registrationReference: Unmanaged<Registration>
  /// The registration's callbacks, which live as long as the registration: they are read for every event without
  /// touching its reference count.
  let callbacks: UnsafePointer<Registration.Callbacks>
  var state: UnsafeMutableRawPointer?
  /// The callback that runs now; `.none` if none runs, or if only the run notes it (`Run.event`).
  var running = EventKind.none
  var life = Life.waiting
  /// The hop's `Face`, which any thread may read.
  let face = Atomic<UInt8>(Face.asRun.rawValue)
  /// The hop's `Answer`, which any thread may read.
  let answer = Atomic<UInt8>(Answer.nothing.rawValue)
  /// The hop's `Deed`, which any thread may read.
  let deed = Atomic<UInt8>(Deed.none.rawValue)
  /// Whether other threads may have the hop, and so may deliver messages through it and spend demand (`sharedOwed`).
  private(set) var isShared = false
  /// Notes that somebody keeps a reference to the hop, which another thread may release: the row is then not
  /// used again. Called in a callback, or while a ticket is open.
  public func lend() { row.isSpent.store(true, ordering: .relaxed) }
  /// The ticket that the running callback has taken; 0 for none.
  var ticket: UInt64 = 0
  var count = 0
  var finishRequest: Status?

  public let index: Int
  /// The number of the attempt: 1, and one more each time when the call begins again above the hop.
  public let attempt: UInt32
  public let level: Level

  // `owed`: demand from above that no message has answered yet. `reserved`: the part of it that is set aside for
  // injected messages that have not left. `earlyDemand`: the hop's own demand before start has left it. `inFlight`:
  // messages that have left downward and are not yet `sent`.
  var owed = 0
  var reserved = 0
  var earlyDemand = 0
  /// The number of messages that were asked for below beyond the demand from above. An injected message
  /// answers demand that has been passed on below as well, and a held message makes the hop ask for another.
  /// The surplus is deducted from the next demand that goes down. Otherwise each such message would leave one
  /// more message standing here until the call's end.
  var surplus = 0
  var inFlight = 0
  /// For each message in flight, in order: whether its `sent` stops here. nil: none does.
  var ledger: Fifo<Bool>?
  /// `ownInFlight`: the number of messages in flight whose `sent` stops here. `untold`: the number of held messages
  /// for which `sent` is still to be told; one is told each time when a `sent` stops here.
  private(set) var ownInFlight = 0
  private(set) var untold = 0
  /// The part of `owed` that is not reserved. Other threads spend from it, once the hop is shared with them.
  let sharedOwed = Atomic<Int>(0)
  /// The number of messages of the hop's answer that have not left it, and their bytes; up to hold_bytes may wait for
  /// demand. Any thread.
  let answersWaiting = Atomic<Int>(0)
  let answerBytes = Atomic<Int>(0)
  private let answerLimit: Int
  /// Events that were delivered before TAKE.
  var earlyAnswers: [Event] = []

  /// The cut below the hop; nil: the hop does not restart.
  private(set) var cut: Cut?

  /// The queues for the hop's callbacks that run on executors; nil: the hop has never had executors.
  private var queues: HopQueues?
  /// The address of `queues`, for other threads.
  private let seenQueues = Atomic<UnsafeMutableRawPointer?>(nil)

  var outbound: Station?
  var inbound: Station?

  convenience init(_ row: HopRow, _ index: Int, _ entry: Chain.Entry) {
    self.init(row, index, entry.level, entry.registration, attempt: 1)
  }

  /// The next instance of the hop, after the call has begun again above it.
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

  /// Sets the hop up for a call. Called while the registration still exists.
  func begin() {
    registrationReference._withUnsafeGuaranteedRef {
      state = $0.userData.pointer
      if $0.records(at: level) { cut = Cut(limit: $0.replayBytes) }
      if $0.hasExecutors { setExecutors($0.outboundExecutor, $0.inboundExecutor) }
    }
  }

  /// Resets the hop to its state before `begin`.
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

  /// Like `renew`, for a hop that has been in the run to the end: no other field of it has changed.
  func renewInRun() {
    answer.store(Answer.nothing.rawValue, ordering: .relaxed)
    deed.store(Deed.none.rawValue, ordering: .relaxed)
    refusal.store(Refusal.none.rawValue, ordering: .relaxed)
    life = .waiting
  }
  /// Replaces the state that `create` has set by the registration's user data.
  func resetState() { state = registrationReference._withUnsafeGuaranteedRef { $0.userData.pointer } }

  public var call: Call { row.call }

  /// Whether the hop may RESTART. Any thread, until the call has ended.
  var records: Bool { registrationReference._withUnsafeGuaranteedRef { $0.records(at: level) } }

  /// The registration, which may be used only until the call has ended.
  var registration: Registration { registrationReference.takeUnretainedValue() }
  /// The registration's number, read without counting a reference.
  var registrationID: UInt64 { registrationReference._withUnsafeGuaranteedRef { $0.id } }

  /// The callback that runs; the call knows it if the hop is in the run.
  var current: EventKind { running == .none ? call.callbackInRun(index) : running }

  /// Sets the executors. Called in `create`.
  func choose(_ outbound: (any Executor)?, _ inbound: (any Executor)?) {
    call.splitRun(at: index)
    setExecutors(outbound, inbound)
  }

  private func setExecutors(_ outbound: (any Executor)?, _ inbound: (any Executor)?) {
    let fresh = HopQueues(outbound, inbound, after: queues)
    queues = fresh
    seenQueues.store(Unmanaged.passUnretained(fresh).toOpaque(), ordering: .releasing)
  }

  /// Whether the hop has queues. Both may be nil, if `create` has chosen the driving thread.
  var hasExecutors: Bool { queues != nil }
  // nil: the callbacks of that lane run on the driving thread.
  var outboundJobs: JobQueue? { queues?.outbound }
  var inboundJobs: JobQueue? { queues?.inbound }
  func jobs(_ lane: Lane) -> JobQueue? { lane == .outbound ? outboundJobs : inboundJobs }
  /// The queue in which the callback for the call's end, and `destroy`, run; nil: they run on the driving thread.
  var lastJobs: JobQueue? { inboundJobs ?? outboundJobs }
  /// The job in which the calling thread runs a callback for an executor; nil: it runs none. Any thread.
  var job: Job? {
    seenQueues.load(ordering: .acquiring).flatMap { runningJob($0) }
  }

  @inline(never) @_optimize(size)
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
    let verdict =
      call.trace == nil ? callback(handle, state) : runTraced(kind) { callback(handle, state) }
    call.watch.end()
    running = .none
    return verdict
  }

  /// The station of a lane; nil: no event stands there.
  func standing(_ lane: Lane) -> Station? { lane == .outbound ? outbound : inbound }

  func clear(_ lane: Lane) { if lane == .outbound { outbound = nil } else { inbound = nil } }

  /// Hands the callback's ticket over to the event that waits.
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

  /// Adds demand from above (invariant I9).
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

  /// A message leaves upward and answers demand. An injected message has reserved its demand before (invariant I9).
  func spendOwed(prepaid: Bool) {
    owed = owed > 0 ? owed - 1 : 0
    if prepaid {
      reserved -= 1
    } else if isShared {
      sharedOwed.wrappingSubtract(1, ordering: .acquiringAndReleasing)
    }
  }

  /// Gives back the demand that an injected message has reserved: the message was discarded before it left.
  func unreserve() {
    reserved -= 1
    if isShared { sharedOwed.wrappingAdd(1, ordering: .acquiringAndReleasing) }
  }

  /// `noteAsked`: demand for `n` messages leaves downward. `noteAnswered`: a message has come, which answers
  /// a part of it.
  func noteAsked(_ n: Int) {
    if let cut { cut.unanswered = saturatingSum(cut.unanswered, n) }
  }
  func noteAnswered() {
    if let cut, cut.unanswered > 0 { cut.unanswered -= 1 }
  }

  /// The part of the hop's demand that still has to go down, after the surplus is deducted.
  func lessSurplus(_ n: Int) -> Int {
    let spent = min(surplus, n)
    surplus -= spent
    return n - spent
  }

  /// Reserves room for a message of the hop's answer, which waits here until it is asked for. False: there is no room.
  /// Any thread.
  func takeRoom(_ message: Message) -> Bool {
    let size = Hop.room(message)
    // A message that has been asked for always has room. A refused message is never counted, not even for a moment:
    // otherwise a message of another thread might be refused because of it.
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
    while size <= answerLimit, seen <= answerLimit - size {
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

  /// An empty message takes room too.
  private static func room(_ message: Message) -> Int { max(message.charge, 1) }

  func answerLeft(_ message: Message) {
    answersWaiting.wrappingSubtract(1, ordering: .acquiringAndReleasing)
    answerBytes.wrappingSubtract(Hop.room(message), ordering: .acquiringAndReleasing)
  }

  /// Drops the events that the hop has delivered, because no TAKE has followed.
  func forgetAnswers() {
    if !earlyAnswers.isEmpty { earlyAnswers = [] }
    answersWaiting.store(0, ordering: .relaxed)
    answerBytes.store(0, ordering: .relaxed)
  }

  /// Lets other threads deliver through the hop from now on.
  func share() {
    // After the end there is nothing to share, and no hop of the call that could be set apart.
    guard !isShared, !isOver else { return }
    call.splitRun(at: index)
    isShared = true
    row.kept = call
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

  /// A message is held. True: `sent` is told for it now, so that the sender sends the next one. False:
  /// earlier messages for which `sent` was told so early are still in flight; `sent` is told for this message
  /// when one of them has been taken. Otherwise a sender above a hop that holds each message for a while
  /// could have any number of messages in flight.
  func tellsHeld() -> Bool {
    if ownInFlight == untold { return true }
    untold += 1
    return false
  }

  /// Counts `n` messages that were taken below. `passed` is the number of messages for which this hop and the
  /// hops above are told `sent`, `held` the number of further messages for which only the hops above are
  /// told.
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

/// Adds without overflow, because a user may give any number.
func saturatingSum(_ a: Int, _ b: Int) -> Int {
  let (sum, overflow) = a.addingReportingOverflow(b)
  return overflow ? (b < 0 ? Int.min : Int.max) : sum
}
