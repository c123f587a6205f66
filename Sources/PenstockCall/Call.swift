import PenstockWire
import Synchronization

/// One call: the machine that moves events between the caller, the hops of its chain and the attempt below.
///
/// It does no I/O and keeps no time: the loop passes in each thing that arrives, and the call tells the
/// layers below and above what to do. Everything runs on the driving thread, except `submit`, which any
/// thread may call. A step carries out one input. Requests of hops or layers that come during a step are
/// queued in `pending` and done after it, so callbacks are never nested.
///
/// `Call+Input` lists the inputs. `Call+Advance` moves events, `Call+Signals` signals; `Call+Settle` handles an
/// event at one hop, and `Call+End` the call's end. docs/laws.md describes the order of events.
public final class Call {
  enum Phase: Equatable {
    /// `open` has not run yet.
    case created
    case live
    /// A cancel or the deadline has ended the call, and the hops are being told.
    case endingLocally
    case ended
  }

  /// Whether the present attempt has been started, and whether it has ended.
  enum Leg { case unstarted, open, ended }

  /// How events from the attempt come to the caller. `queued`: by `execute`, like any other input. `direct`:
  /// without the code for single hops, which saves 70 instructions an event (invariant I12). The door is
  /// `direct` while the attempt is open, all hops are in the run (the hops that count together), and there is
  /// neither a codec nor a trace.
  enum Door { case direct, queued }

  /// Which notices the layer above (the caller's side) gets; `toldSent`: all of them.
  public enum Manner {
    case toldSent
    /// The layer above gets all notices but `sent`.
    case untold
    /// The layer above gets all notices but `sent`. Besides, nobody uses the call after its end, and its
    /// release frees no user data.
    case brief
  }

  public let id: UInt64
  public let request: Request
  /// A counted reference to the object that `values` has made; nil until then.
  private let madeValues = Atomic<UnsafeMutableRawPointer?>(nil)
  public let measures = Measures()
  /// A counted reference to the `ConnectionFacts` of the present attempt; nil before it has a connection.
  let connectionFacts = Atomic<UnsafeMutableRawPointer?>(nil)
  /// The facts of earlier attempts' connections, kept because another thread may be about to read them.
  var pastConnections: [ConnectionFacts] = []
  public let origin: CallOrigin
  public var loop: CallLoop { origin.loop }
  /// Runs `body` with `loop`, without counting a reference: for code that runs often.
  @inline(__always)
  func withLoop<R>(_ body: (CallLoop) -> R) -> R { borrow(origin) { borrow($0.loop, body) } }
  /// Whether the calling thread is the driving thread. Any thread.
  var isDriving: Bool { withLoop { $0.isDriving } }

  /// The chain; nil once the call has ended.
  public internal(set) var chain: Chain?
  var hops = HopRow.Hops()
  /// The object that holds the hops, as a counted reference. It is kept until the call has ended and the last
  /// step is done.
  private(set) var row: Unmanaged<HopRow>?
  /// The object to which `row` is given back for further calls. The reference is counted if the chain is
  /// released before the row.
  private var stock: Unmanaged<Chain.Stock>?
  /// The chain's callbacks; nil once the call has ended.
  private(set) var table: UnsafePointer<Chain.Callbacks>?
  /// Encodes and decodes messages; set before `open`. nil: the messages are bytes.
  public var codec: Codec?
  /// The pointer that the program has given to this call; set before `open`, and then read on any thread, in
  /// callbacks. Its `UserData` is kept for as long as a callback may run: by `context` until the call's end,
  /// and by each job on an executor.
  public private(set) var contextPointer: UnsafeMutableRawPointer?
  public private(set) var context: UserData?
  var below: CallBelow?
  /// The layer above (the caller's side), as a counted reference. It is released at the call's end, after
  /// `callStatus` has returned, so never while one of its functions runs.
  private(set) var above: Unmanaged<CallAbove>?
  /// The trace; nil: none is kept.
  public let trace: (any CallTrace)?
  /// An object in which the loop keeps its own data about this call; the call owns the object.
  private let attachment: AnyObject
  /// The address of `attachment`, which may be used without counting a reference while the call exists.
  public var attached: UnsafeMutableRawPointer { Unmanaged.passUnretained(attachment).toOpaque() }

  var pending = Fifo<Input>()
  /// The state of the `Cut` above the attempt, which records events for a further attempt.
  var bottom = Bottom.start
  /// Resolutions of tickets that came while their events' callbacks still run on executors.
  var earlyResolutions: [(ticket: UInt64, resolution: Resolution)] = []
  /// Inputs that other threads have posted, the newest first.
  let posted = Atomic<UnsafeMutablePointer<Posted>?>(nil)

  /// The end by a hop that is being carried out, while events leave the hop before its status; otherwise nil.
  var ending: OwnEnd?

  /// The top hops that count together.
  var run = Run()

  // The state of the outbound lane. The demand that waits where start is, and moves on with start.
  var frontierDemand = 0
  var outboundCount = 0
  /// The number of messages that the transport was given and has not reported as sent yet.
  var inTransport = 0
  /// The notices that the layer above gets. Set before `open`.
  public var manner = Manner.toldSent

  // The state of the inbound lane: the messages that the attempt may still deliver, and those that have come.
  var demandBelow = 0
  var inboundCount = 0
  var headersCount = 0
  /// The event of the running callback, as an uncounted reference. The code that calls the callback keeps the
  /// event until the callback returns.
  private var shown = unsafeBitCast(Event.start, to: UInt.self)
  var event: Event { unsafeBitCast(shown, to: Event.self) }
  @inline(__always)
  func show(_ event: Event) { shown = unsafeBitCast(event, to: UInt.self) }

  // Small fields stand together to save memory: ten thousand calls may be open and idle.
  var phase = Phase.created
  var isRunning = false
  var leg = Leg.unstarted
  var door = Door.queued
  /// The index of the hop where start is; hops.count + 1 once start has gone to the transport.
  @Small var startAt = 0
  /// Outbound events that reach this index or a greater one are dropped: the chain has ended from there on.
  @Small var outboundEnd: Int
  @Small var pausesInbound = 0
  /// The codec stands above the hop at this index.
  @Small private(set) var codecIndex: Int
  /// The index of the first hop per attempt. Above this hop the `Cut` records events for a further attempt.
  @Small private(set) var cutAt: Int
  /// How many messages of the present attempt were already reported as `sent` in an earlier one, so that the
  /// hops above are not told about them again.
  @Small var sentAgain = 0

  public init(
    id: UInt64, request: Request, chain: Chain?, origin: CallOrigin, attachment: AnyObject,
    trace: (any CallTrace)? = nil
  ) {
    self.id = id
    self.request = request
    self.chain = chain
    chain?.callBegan()
    self.origin = origin
    self.attachment = attachment
    codecIndex = chain?.codecIndex ?? 0
    cutAt = chain?.cutAt ?? 0
    stock = chain.map { .passUnretained($0.stock) }
    self.trace = trace
    outboundEnd = (chain?.entries.count ?? 0) + 1
  }

  deinit {
    chain?.callDropped()
    if let row { Chain.Stock.drop(row) }
    forgetBottom()
    above?.release()
    // Frees inputs that were posted and never carried out.
    if posted.load(ordering: .acquiring) != nil { dropPosted() }
    if let facts = connectionFacts.load(ordering: .relaxed) {
      Unmanaged<ConnectionFacts>.fromOpaque(facts).release()
    }
    if let made = madeValues.load(ordering: .acquiring) { Unmanaged<CallValues>.fromOpaque(made).release() }
  }

  public var watch: CallWatch { origin.watch }
  /// The clock by which deadlines are counted. Any thread.
  public var clock: UInt64 { loop.clock }

  /// The values that hops and the caller share; nil if nobody has used them yet. Any thread.
  public var knownValues: CallValues? {
    madeValues.load(ordering: .acquiring).map { Unmanaged<CallValues>.fromOpaque($0).takeUnretainedValue() }
  }

  /// The values that hops and the caller share, made at the first use: few calls have any. Any thread.
  public var values: CallValues {
    if let known = knownValues { return known }
    let made = Unmanaged.passRetained(loop.newValues())
    let (isFirst, _) = madeValues.compareExchange(
      expected: nil, desired: made.toOpaque(), ordering: .acquiringAndReleasing)
    if !isFirst { made.release() }
    return knownValues.unsafelyUnwrapped
  }

  /// Sets the layer above. Called before `open`, and before any other thread has a reference to `above`.
  public func attach(above: CallAbove) { self.above = retainNew(above) }

  /// Gives the call the program's pointer. Called before `open`.
  public func give(_ context: UserData) {
    contextPointer = context.pointer
    self.context = context
  }
  /// Called at the call's end, when the last callback on the driving thread has returned.
  func forgetContext() { if context != nil { context = nil } }

  /// Removes the layer above at the call's end. The caller of this function has to release the reference.
  func detachAbove() -> Unmanaged<CallAbove>? { above.take() }
  public func attach(below: CallBelow) { self.below = below }

  /// Limits the deadline: the call ends no later than `time`. Called before `open`.
  public func limitDeadline(_ time: UInt64?) {
    if let time { request.deadline = min(request.deadline ?? time, time) }
  }

  public var isEnded: Bool { phase == .ended }

  /// Whether only hops stand between the caller and the attempt: neither a codec nor a trace.
  var hasOnlyHops: Bool { codec == nil && trace == nil }

  /// Whether the call was made with hops, also after its end. Other threads can get at it by a hop's handle.
  public var wasMadeWithHops: Bool { stock != nil }

  // MARK: - From below, on the driving thread

  /// Whether the attempt may deliver a message: the attempt is open, a message was asked for, and no hop has
  /// shut its inbound lane.
  public var wantsMessage: Bool { demandBelow > 0 && pausesInbound == 0 && phase == .live && leg == .open }

  /// The attempt reports a small message that has arrived completely before it was asked for. The caller is
  /// told, if no hop has shut its inbound lane.
  public func offerMessage() {
    if demandBelow == 0, pausesInbound == 0, phase == .live, !isRunning {
      tellAbove { $0.callOffersMessage() }
    }
  }

  public func inboundHeaders(_ headers: Metadata) {
    if isDirect, run.length == 0 || !runSeesHeaders {
      isRunning = true
      commit()
      arrive(headers)
      endPerform()
    } else {
      perform(.headersFromBelow(headers === Metadata.none ? Metadata() : headers))
    }
  }

  public func inboundMessage(_ message: Message) {
    if isDirect, run.length == 0 || !runSeesMessages {
      isRunning = true
      commit()
      if run.length > 0 { run.owed -= 1 }
      if demandBelow > 0 { demandBelow -= 1 }
      arrive(message)
      endPerform()
    } else {
      perform(.messageFromBelow(message))
    }
  }

  public func inboundStatus(_ status: Status) {
    if isDirect, status.canRepeat == .no {
      isRunning = true
      endBelow()
      if run.length == 0 { arrive(status) } else { moveUp(.status(status), at: run.length - 1) }
      endPerform()
    } else {
      perform(.statusFromBelow(status))
    }
  }

  /// Whether events from the attempt go straight to the caller now (`Door.direct`).
  @inline(__always)
  private var isDirect: Bool { door == .direct && !isRunning }

  private func endBelow() {
    leg = .ended
    door = .queued
    outboundEnd = min(outboundEnd, hops.count)
    releaseTransport()
  }

  public func transportSent(_ n: Int) { perform(.sentFromBelow(n)) }

  /// The time that `CallLoop.setDeadline` was given has come.
  public func deadlinePassed() { perform(.endLocally(statusOfDeadline())) }

  // MARK: - Inputs, a step each

  /// Carries out an input at once, or after the running step. Only on the driving thread.
  public func perform(_ input: Input) {
    step(input)
    if phase == .ended, !isRunning { giveRow() }
  }

  @inline(__always)
  func step(_ input: Input) {
    if isRunning {
      pending.append(input)
      return
    }
    isRunning = true
    execute(input)
    checkStep()
    endStep()
  }

  @inline(__always)
  private func checkStep() {
    #if PENSTOCK_CHECKS
      check()
    #endif
  }

  @inline(__always)
  private func endStep() {
    if !pending.isEmpty { executePending() }
    isRunning = false
  }

  @inline(__always)
  private func endPerform() {
    endStep()
    if phase == .ended { giveRow() }
  }

  /// Ends the step in which hops with on_pick have seen an endpoint.
  func endAskedStep() {
    checkStep()
    endPerform()
  }

  private func executePending() {
    while let next = pending.popFirst() {
      execute(next)
      checkStep()
    }
  }

  /// Whether no other thread has, or can get, a reference to one of the call's hops; then nothing about them
  /// needs a lock. On the driving thread.
  public var hopsArePrivate: Bool {
    row.map {
      run.length == hops.count && !$0._withUnsafeGuaranteedRef { $0.wasLookedAt.load(ordering: .acquiring) }
    } ?? true
  }

  /// Gives `row` back to `stock` at the call's end if no other thread knows the hops. Otherwise keeps what
  /// `giveRow` needs, because the chain is released next.
  func letRowGo() {
    guard let row, let stock else { return }
    if hopsArePrivate, stock._withUnsafeGuaranteedRef({ $0.givePrivate(row) }) {
      self.row = nil
    } else {
      _ = stock.retain()
    }
    table = nil
  }

  /// Gives `row` back to `stock`, when no code of the call runs any more that might use one of its hops.
  func giveRow() {
    guard let row, let stock else { return }
    self.row = nil
    stock._withUnsafeGuaranteedRef { $0.give(row, of: self, runLength: run.length) }
    stock.release()
  }

  private func execute(_ input: Input) {
    guard phase != .ended, phase != .created || input.mayBegin else { return }
    if trace != nil { note(input) }
    switch input {
    case .open(let demand, let message): open(demand, message)
    case .send(let message): moveDown(.send(message), at: 0)
    case .halfClose: moveDown(.halfClose, at: 0)
    case .demand(let n): runDemand(n, at: 0)
    case .endLocally(let status): endLocally(status)
    case .headersFromBelow(let headers):
      guard leg == .open else { return }
      moveUp(.headers(headers), at: hops.count - 1)
    case .messageFromBelow(let message):
      guard leg == .open else { return }
      if demandBelow > 0 { demandBelow -= 1 }
      moveUp(.receive(message), at: hops.count - 1)
    case .statusFromBelow(let status):
      guard leg == .open else { return }
      endBelow()
      // If the call is sent again, the hops per attempt are made anew, so they leave `run`.
      if status.canRepeat != .no {
        splitRun(at: cutAt)
        if status.canRepeat == .refused, case .committed = bottom { say(.state, in: status) }
      }
      moveUp(.status(status), at: hops.count - 1)
    case .sentFromBelow(let n):
      guard leg == .open else { return }
      let told = min(n, inTransport)
      inTransport -= told
      runSent(told, at: hops.count - 1)
    case .sentFrom(let index, let n): runSent(n, at: index)
    case .resolve(let ticket, let resolution): resolve(ticket, resolution)
    case .resume(let ticket, let time): loop.resume(ticket, of: self, at: time)
    case .answer(let hop, let event): answer(event, from: hop)
    case .put(let hop, let event): put(event, from: hop)
    case .finish(let hop, let status, let ticket):
      splitRun(at: hop.index)
      guard hop.isActive else { return }
      if ticket != 0 {
        if resolve(ticket, of: hop, .finish(status)) { return }
        // The callback that has taken the ticket has not returned, or has returned another verdict.
        if trace != nil { noteResolved(hop, .none, .finish(status)) }
      }
      finish(at: hop.index, status)
    case .demandBelow(let hop, let n): runDemand(n, below: hop)
    case .flush(let index, let lane):
      guard index < hops.count else { return }
      splitRun(at: index)
      drain(hops[index], lane)
    case .replay(let cut, let index): replay(cut, index)
    case .ran(let job): ran(job)
    case .executorLost(let hop): executorLost(hop)
    case .awaited: below?.awaited()
    }
  }

  /// Tells the caller that the call takes turns (`CallAbove.callTakesTurns`).
  public func takesTurns() { above?._withUnsafeGuaranteedRef { $0.callTakesTurns() } }

  /// Asks the caller whether it takes a message before its half-close (`CallAbove.callTakesEarlyMessage`).
  public var takesEarlyMessage: Bool {
    above?._withUnsafeGuaranteedRef { $0.callTakesEarlyMessage() } ?? true
  }

  /// Opens the call on the driving thread, after `awaitOpen`. `message` is the one request message, if the
  /// caller passes it here; nil if it may have been posted as an input.
  public func open(_ message: consuming Message?) {
    let said = message ?? takeWhole()
    let demand = request.kind.receivesOne ? 2 : 0
    guard trace == nil, !isRunning else { return perform(.open(demand: demand, message: consume said)) }
    // This does what `execute` would do, but takes 60 instructions fewer.
    isRunning = true
    open(demand, said)
    checkStep()
    endPerform()
  }

  private func open(_ demand: Int, _ message: Message?) {
    guard phase == .created else { return }
    var isLate = false
    if let deadline = request.deadline {
      isLate = deadline <= withLoop { $0.now }
      if isLate, chain == nil { return deadlinePassed() }
      withLoop { $0.setDeadline(self, deadline) }
    }
    phase = .live
    if let stock {
      let (row, table) = stock._withUnsafeGuaranteedRef { ($0.take(self), $0.table) }
      self.row = row
      self.table = table
      hops = row._withUnsafeGuaranteedRef { $0.hops }
      // In a call with a trace no hop is in the run (the hops that count together), so that each hop notes
      // its events. Other calls need no test for a trace there.
      if trace == nil {
        run.length = table.pointee.runLength
        if codec != nil { run.length = min(run.length, codecIndex) }
      }
    }
    frontierDemand = demand
    let mayLeaveWhole =
      message != nil && hasOnlyHops && request.kind.sendsOne && (run.length == 0 || runPassesMessages)
    switch advanceDown(.start, at: 0) {
    case .below:
      // If the deadline has passed by the time when start has left the last hop, nothing is sent.
      if isLate, let deadline = request.deadline, deadline <= withLoop({ $0.now }) { return deadlinePassed() }
      if mayLeaveWhole, let message, leavesWhole(message) { return }
      leaveForTransport(.start)
    case .above, .stays: break
    }
    if let message {
      // The message comes after the inputs that start has caused; usually there are none.
      if pending.isEmpty { execute(.send(message)) } else { pending.append(.send(message)) }
      if pending.isEmpty { execute(.halfClose) } else { pending.append(.halfClose) }
    }
  }
}
