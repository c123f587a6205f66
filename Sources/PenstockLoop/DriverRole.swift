/// The role of the driver, that is, of the thread that runs the event loop: the decisions about who has it. No
/// lock, no clock, no thread: `Runtime` asks under its lock (RuntimeRole.swift), and carries the answers out.
///
/// A thread that waits in a blocking function takes the role if the role is free. If the runtime's own thread
/// has the role, the waiter asks for it. If another waiter has it, the thread parks, and is woken when its
/// cell is set or when it gets the role. A driver that leaves gives the role to a parked waiter, or frees the
/// role if no waiter is parked. In thread mode the own thread then takes the free role: at once if there is
/// work that no caller waits for, otherwise when the role has been free for the linger.
///
/// A tight loop of blocking calls must not wake the own thread in each call. So the own thread sleeps for a
/// time and then checks by itself whether the role is free. When one driver has the role for long, the own
/// thread sleeps without a limit, and that driver wakes it when it leaves. A driver that leaves also wakes
/// the own thread if a timer is due before the own thread's next check.
///
/// A waiter that was woken only to drive goes on waiting, because its call has not ended. When it then sleeps
/// in the loop, other threads have to wake it to send their next calls. So if many threads wait at once (a
/// crowd), the own thread gets the role and drives on. The end of a call then seldom wakes any thread except
/// the one that waits for the call.
///
/// A thread parks only if another thread drives, or if the own thread will take the role: because it was told
/// to (`wanted`) and woken, or because it checks the role by itself after the linger.
///
/// | | seek | take | leave | handOver |
/// |---|---|---|---|---|
/// | free | drive -> caller, or park (1) | true -> caller, or held (2) | x | x |
/// | own | park; asks -> own, asked | false | x | wakeNext -> given; otherwise -> own, not asked |
/// | caller | park | false | wakeNext -> given; otherwise -> free: tellHost, wakeOwn or nothing | x |
/// | given | drive -> caller for the thread that it is given to; park | false | x | x |
/// | held | park | false | as caller | x |
/// | over | over | false | x | x |
///
/// | | look | call | end | inherit | resume |
/// |---|---|---|---|---|---|
/// | free | drive -> own, or sleep (3) | wakeOwn -> free, wanted (4) | -> over | -> free | true if wanted -> free, not wanted |
/// | own | x | wakeLoop | -> over | -> free | false |
/// | caller | sleep | wakeLoop | -> over | -> free | false |
/// | given | sleep | wakeLoop | x | -> free | false |
/// | held | sleep | wakeLoop | -> over | -> free | false |
/// | over | exit | nothing | - | - | false |
///
/// (1): it parks if it may not drive, or if the own thread is wanted in a crowd. (2): held for a fork; false for an
/// item in a crowd. (3): it drives if it is wanted, if a timer is due, or after the linger. (4): without an own
/// thread, wakeLoop.
///
/// In each cell: the answer, then the state that follows; "-" changes nothing; "x" can't happen, because the
/// calling thread would need the role and has it not (or has it already). A thread in `seek` whose wait has its
/// result does not park: the answer is `done`. It drives all the same if it was given the role, and then
/// leaves: so the role is never lost with a wait that ends.
///
/// Two more events are about the own thread: `ownStarts`, after which a free role counts as free since now, and
/// `ownFails`, if the thread could not be started: then a free role is given to a parked thread, and nothing is
/// left to the own thread until it is woken again.
///
/// The invariants, which test builds check at each step:
///
/// - R1: the role goes from thread to thread as the tables say. Above all, a thread takes the role only if the role
///   is free or was given to this thread, and only the thread that has the role leaves it.
/// - R2: a runtime that has ended never has a driver again.
/// - R3: while the own thread drives, it does not sleep on its word.
/// - R4: a host-driven runtime has no own thread: it never drives, and there is no crowd.
/// - R5: in a crowd no waiter gets the role from a driver that leaves.
struct DriverRole: Equatable {
  enum Holder: Equatable {
    /// No thread drives since this time (monotonic ns). `wanted`: the own thread has to take the role at once,
    /// without the linger.
    case free(since: UInt64, wanted: Bool)
    /// The runtime's own thread drives. `asked`: it should give the role to a waiter.
    case own(asked: Bool)
    /// A thread in a blocking function drives.
    case caller
    /// The role was given to this parked thread, which is being woken and has not begun to drive.
    case given(to: UInt64)
    /// The thread that forks the process has the role, so that no thread drives meanwhile.
    case held
    /// The runtime has ended.
    case over
  }

  /// The runtime's own thread, as far as another thread may have to wake it.
  enum Own: Equatable {
    /// The host program drives: there is no such thread.
    case none
    /// It drives, or will look at the role by itself.
    case awake
    /// It sleeps, and looks at the role at this time (monotonic ns) or when it is woken.
    case looks(at: UInt64)
    /// It sleeps until it is woken. In a forked child: it is started when it is woken.
    case sleeps
  }

  /// Times are in ns. Tests use smaller numbers.
  struct Limits: Equatable {
    /// How long the role may be free before the own thread takes it.
    var linger: UInt64
    /// The shortest sleep of the own thread between two looks at the role.
    var shortestLook: UInt64
    /// The longest such sleep while blocking calls drive the loop in turns, in units of the shortest. With 16
    /// the own thread wakes about once in a hundred calls. With a larger number, the last send or cancel of a
    /// thread that does not wait may be delayed for longer.
    var longestLook: UInt64 = 16
    /// The own thread sleeps without a limit after this number of looks in a row that found the same driver.
    var calmLooks = 20
    /// A crowd is a time when many threads wait in blocking functions. It begins when `crowdSize` threads are
    /// parked. It ends when `crowdLasts` waits have begun while fewer threads were parked.
    var crowdSize = 4
    var crowdLasts: UInt32 = 64

    init(linger: UInt64) {
      self.linger = linger
      shortestLook = max(linger, 50_000)
    }
  }

  let limits: Limits
  private(set) var holder: Holder
  private(set) var own: Own
  /// Not 0: there is a crowd, which lasts for this number of further waits.
  private(set) var crowd: UInt32 = 0
  /// Whether the driver has changed since the own thread last looked.
  private(set) var hasTurned = false
  /// The own thread's sleep before its last look, and the number of looks in a row that found the same driver.
  private(set) var sleep: UInt64
  private(set) var looks = 0

  init(_ limits: Limits, hasOwnThread: Bool) {
    self.limits = limits
    holder = .free(since: 0, wanted: false)
    own = hasOwnThread ? .awake : .none
    sleep = limits.shortestLook
  }

  // MARK: Threads that wait

  enum Seek: Equatable {
    /// The thread has the role now.
    case drive
    /// The thread parks, and looks again when it is woken. `asks`: first it wakes the own thread, which drives
    /// and should give the role up.
    case park(asks: Bool)
    /// The wait has its result.
    case done
    case over
  }

  /// A thread begins to wait.
  mutating func waitBegins() {
    if crowd != 0 { crowd -= 1 }
  }

  /// `thread`, which waits, looks for the role. `isDone`: its wait has a result, so it only takes the role if it
  /// was given it. `newAmong`: the number of threads that will be parked if it parks; nil: it was parked
  /// already. `background`: there is work that no thread waits for. The own thread would then take the role back
  /// at once, and so it would in a crowd; so it is not asked.
  mutating func seek(_ thread: UInt64, mayDrive: Bool, isDone: Bool, newAmong: Int?, background: Bool) -> Seek
  {
    switch holder {
    case .given(let next) where next == thread:
      become(.caller)
      return .drive
    case .over:
      return .over
    case .free(_, let wanted):
      if isDone { return .done }
      if mayDrive && !(wanted && crowd != 0) {
        become(.caller)
        return .drive
      }
      park(newAmong)
      return .park(asks: false)
    case .own(let asked):
      if isDone { return .done }
      park(newAmong)
      if asked || !mayDrive || crowd != 0 || background { return .park(asks: false) }
      holder = .own(asked: true)
      return .park(asks: true)
    case .caller, .given, .held:
      if isDone { return .done }
      park(newAmong)
      return .park(asks: false)
    }
  }

  private mutating func park(_ newAmong: Int?) {
    if let newAmong, newAmong >= limits.crowdSize, own != .none { crowd = limits.crowdLasts }
  }

  enum Purpose: Equatable {
    /// The thread will wait in a blocking function, and has an item to run first.
    case item
    /// The thread reads state of the driver's.
    case inspection
    case fork
  }

  /// A thread that has not parked takes the role if it is free. False: it has not got the role.
  mutating func take(for purpose: Purpose) -> Bool {
    switch holder {
    case .free:
      switch purpose {
      case .item:
        if crowd != 0 { return false }
        become(.caller)
      case .inspection:
        become(.caller)
      case .fork:
        become(.held)
      }
      return true
    case .own, .caller, .given, .held, .over:
      return false
    }
  }

  // MARK: The driver

  enum Leave: Equatable {
    /// The role was given to the next thread, which has to be woken.
    case wakeNext
    /// The role is free, and the own thread has to be woken.
    case wakeOwn
    /// The role is free, and the host program has to be told by the descriptor that it polls.
    case tellHost
    case nothing
  }

  /// Whether a driver that leaves may give the role to a waiter.
  var mayGive: Bool { crowd == 0 }

  /// The driver, which is not the own thread, leaves. `next`: a parked thread that may drive, if `mayGive`.
  /// `hurries`: there is work that does not wait for the linger. `timer`: the time of the earliest timer.
  mutating func leave(to next: UInt64?, at now: UInt64, hurries: Bool, timer: UInt64?) -> Leave {
    switch holder {
    case .caller, .held:
      if let next {
        give(to: next)
        return .wakeNext
      }
      let wanted = own != .none && (hurries || crowd != 0 || limits.linger == 0)
      become(.free(since: now, wanted: wanted))
      switch own {
      case .none: return .tellHost
      case .awake: if !wanted { return .nothing }
      case .looks(let at): if !wanted && timer ?? .max >= at { return .nothing }
      case .sleeps: break
      }
      own = .awake
      return .wakeOwn
    case .free, .own, .given, .over:
      broken("R1: a thread leaves that does not drive")
      return .nothing
    }
  }

  /// The own thread, which was asked to, gives the role to `next`. False: it goes on driving.
  mutating func handOver(to next: UInt64?) -> Bool {
    switch holder {
    case .own:
      guard let next else {
        holder = .own(asked: false)
        return false
      }
      give(to: next)
      return true
    case .free, .caller, .given, .held, .over:
      broken("R1: the own thread gives a role that it has not")
      return false
    }
  }

  private mutating func give(to next: UInt64) {
    if crowd != 0 { broken("R5: a waiter gets the role in a crowd") }
    become(.given(to: next))
  }

  /// The runtime ends. The calling thread drives, or no thread does.
  mutating func end() { become(.over) }

  // MARK: The own thread

  enum Look: Equatable {
    /// The own thread has the role now.
    case drive
    /// The own thread sleeps until this time, or until it is woken; nil: without a limit.
    case sleep(until: UInt64?)
    case exit
  }

  /// The own thread, which does not drive, looks at the role. `timer`: the time of the earliest timer, which
  /// counts only if the role is free.
  ///
  /// While blocking calls follow one another, the own thread doubles its sleep between two looks. Looks after
  /// each linger would take processor time from the calls.
  mutating func look(at now: UInt64, timer: UInt64?) -> Look {
    switch holder {
    case .free(let since, let wanted):
      let late = since &+ limits.linger
      let due = timer ?? .max
      if wanted || now >= late || now >= due {
        own = .awake
        sleep = limits.shortestLook
        become(.own(asked: false))
        return .drive
      }
      let isBusy = lookAgain()
      looks = 0
      return sleep(until: min(due, max(late, isBusy ? now &+ sleep : 0)))
    case .caller, .given, .held:
      looks = lookAgain() ? 0 : looks + 1
      return sleep(until: looks >= limits.calmLooks || limits.linger == 0 ? .max : now &+ sleep)
    case .own:
      broken("R1: the own thread looks at a role that it has")
      return .drive
    case .over:
      return .exit
    }
  }

  /// Sets the length of the next sleep. Returns whether the driver has changed since the last look.
  private mutating func lookAgain() -> Bool {
    let isBusy = hasTurned
    hasTurned = false
    sleep = isBusy ? min(sleep * 2, limits.shortestLook * limits.longestLook) : limits.shortestLook
    return isBusy
  }

  private mutating func sleep(until time: UInt64) -> Look {
    own = time == .max ? .sleeps : .looks(at: time)
    return .sleep(until: time == .max ? nil : time)
  }

  /// The own thread was started. It waits for the linger before it drives, as if a driver had just left. So a
  /// program that begins with a blocking call drives the loop itself, and wakes no thread.
  mutating func ownStarts(at now: UInt64) {
    own = .awake
    if case .free(_, let wanted) = holder { holder = .free(since: now, wanted: wanted) }
  }

  /// The own thread of a forked child could not be started, though the role may be free for it. `next`: a parked
  /// thread that may drive; it gets the role, because nobody else would take it.
  mutating func ownFails(to next: UInt64?) {
    own = .sleeps
    crowd = 0
    guard case .free(let since, _) = holder else { return }
    holder = .free(since: since, wanted: false)
    if let next { give(to: next) }
  }

  // MARK: Other threads

  enum Call: Equatable {
    case wakeOwn
    /// The loop has to be woken: the driver, or the host program if no thread drives.
    case wakeLoop
    case nothing
  }

  /// There is work that no thread may wait for: a driver has to look at it.
  mutating func call() -> Call {
    switch holder {
    case .free(let since, _):
      if own == .none { return .wakeLoop }
      holder = .free(since: since, wanted: true)
      return .wakeOwn
    case .own, .caller, .given, .held:
      return .wakeLoop
    case .over:
      return .nothing
    }
  }

  /// The process is a forked child, and the calling thread is its only one. `wanted`: the loop has work.
  mutating func inherit(at now: UInt64, wanted: Bool) {
    crowd = 0
    hasTurned = true
    sleep = limits.shortestLook
    looks = 0
    if own != .none { own = .sleeps }
    if holder != .over { holder = .free(since: now, wanted: wanted) }
  }

  /// In a forked child: whether a thread has to be woken for the work that was inherited. That thread may also
  /// be one that waits, so the own thread has no claim to the role any more.
  mutating func resume() -> Bool {
    guard case .free(let since, true) = holder else { return false }
    holder = .free(since: since, wanted: false)
    return true
  }

  // MARK: What is asked

  var isFree: Bool {
    switch holder {
    case .free: true
    case .own, .caller, .given, .held, .over: false
    }
  }

  // MARK: Steps

  private mutating func become(_ next: Holder) {
    #if PENSTOCK_CHECKS
      checkStep(to: next)
    #endif
    holder = next
    hasTurned = true
  }
}

extension DriverRole {
  /// Test builds stop here.
  private func broken(_ invariant: StaticString) {
    #if PENSTOCK_CHECKS
      fatalError("invariant \(invariant)")
    #endif
  }

  #if PENSTOCK_CHECKS
    private func checkStep(to next: Holder) {
      if own == .none, crowd != 0 { broken("R4: a host-driven runtime has a crowd") }
      switch (holder, next) {
      case (.over, .free), (.over, .own), (.over, .caller), (.over, .given), (.over, .held):
        broken("R2: a runtime that has ended has a driver")
      case (.free, .own):
        if own == .none { broken("R4: a host-driven runtime has an own thread") }
        if own != .awake { broken("R3: the own thread drives in its sleep") }
      case (.free, .caller), (.free, .given), (.free, .held), (.free, .over),
        (.own, .given), (.own, .over),
        (.caller, .free), (.caller, .given), (.caller, .over),
        (.given, .caller),
        (.held, .free), (.held, .given), (.held, .over),
        (.over, .over):
        break
      case (.free, .free),
        (.own, .free), (.own, .own), (.own, .caller), (.own, .held),
        (.caller, .own), (.caller, .caller), (.caller, .held),
        (.given, .free), (.given, .own), (.given, .given), (.given, .held), (.given, .over),
        (.held, .own), (.held, .caller), (.held, .held):
        broken("R1: the role goes to a thread that may not have it")
      }
    }
  #endif
}
