@testable import PenstockLoop

/// A model of a runtime and its threads: each thread is a small state machine that does what RuntimeRole.swift and
/// RuntimeTurn.swift do around the role, in steps that other threads can see: a section under the lock, or one access
/// to what is not under the lock. It sleeps and wakes as `DriverRole` says. Time passes in steps of its own, at any
/// moment, up to the next time at which a thread would wake by itself.
struct DriverRoleModel {
  enum Kind: Equatable {
    case own
    /// Waits in a blocking function, once per round. `posts`: the item that it has posted sets its cell; otherwise
    /// another thread does. `direct`: it brings the item to the loop itself if it can drive at once. `patience`: the
    /// time after which it gives up.
    case caller(mayDrive: Bool, posts: Bool, direct: Bool, patience: UInt64?)
    /// Posts items that nobody waits for, one per round. `timer`: the item arms a timer.
    case poster(timer: UInt64?)
    /// Posts items that count as work in the background.
    case background
    /// Sets the cell of this thread.
    case setter(Int)
    /// Takes the role for a moment.
    case visitor(DriverRole.Purpose)
    /// Shuts the runtime down, and waits for its end.
    case ender
    /// The host program: polls the outer descriptor, and the runtime when it is readable.
    case host
  }

  enum Place: UInt8 {
    case ready, counts, calls, pushes, signals, kicks, seeks, asks, parked
    case settles, handsOver, falls, looksOnce, polls, rises, ends, leaves, tells, wakesNext, wakesOwn
    case looks, watches, sets, tries, done
  }

  struct Thread {
    let kind: Kind
    var at: Place
    var rounds: Int
    /// Whether the word on which the thread sleeps has changed since the thread has read it.
    var seesChange = false
    var isSet = false
    var isNew = true
    /// Whether it has parked in this wait, and so was added to the list of those that wait.
    var hasParked = false
    var isLate = false
    /// The time at which it wakes by itself.
    var limit: UInt64?
    /// The thread that it is about to wake.
    var next = 0

    init(_ kind: Kind, _ at: Place, _ rounds: Int = 1) {
      self.kind = kind
      self.at = at
      self.rounds = rounds
    }
  }

  enum Item: UInt8 { case work, background, timer }

  private(set) var role: DriverRole
  private(set) var threads: [Thread]
  private(set) var now: UInt64 = 0
  /// The items that were posted: the number of the thread whose cell it sets, or 100 and the kind of item.
  private(set) var inbox: [UInt8] = []
  private(set) var waiters: [Int] = []
  private(set) var timer: UInt64?
  private(set) var lockedBy: Int?
  private(set) var asleep = false
  private(set) var kick = false
  private(set) var yieldWanted = false
  private(set) var background = 0
  private(set) var isEnding = false
  /// Whether the runtime is one of a forked child, and its own thread can't be started.
  private let lacksThread: Bool

  static let limits: DriverRole.Limits = {
    var limits = DriverRole.Limits(linger: 2)
    limits.shortestLook = 2
    limits.longestLook = 2
    limits.calmLooks = 2
    limits.crowdSize = 2
    limits.crowdLasts = 2
    return limits
  }()

  /// In thread mode the first thread is the runtime's own one.
  init(_ kinds: [(Kind, Int)], host: Bool = false, lacksThread: Bool = false) {
    role = DriverRole(Self.limits, hasOwnThread: !host)
    self.lacksThread = lacksThread
    asleep = host || lacksThread
    threads = kinds.map { kind, rounds in
      switch kind {
      case .own: Thread(.own, lacksThread ? .done : .looks)
      case .caller(_, let posts, _, _): Thread(kind, posts ? .ready : .seeks, rounds)
      case .poster: Thread(kind, .pushes, rounds)
      case .background, .ender: Thread(kind, .counts, rounds)
      case .setter: Thread(kind, .sets)
      case .visitor: Thread(kind, .tries, rounds)
      case .host: Thread(kind, .watches)
      }
    }
    if lacksThread { role.inherit(at: 0, wanted: false) } else if !host { role.ownStarts(at: 0) }
  }

  // MARK: What can happen

  /// The threads that can go on.
  var runnable: [Int] { threads.indices.filter(canGoOn) }

  private func canGoOn(_ i: Int) -> Bool {
    let thread = threads[i]
    switch thread.at {
    case .done: return false
    case .parked: return thread.seesChange || thread.limit ?? .max <= now
    case .polls: return kick || timer ?? .max <= now || thread.limit ?? .max <= now
    case .watches: return role.isFree && (kick || timer ?? .max <= now) || role.holder == .over
    case .ready, .kicks, .calls, .seeks, .settles, .leaves, .handsOver, .looks, .tries: return lockedBy == nil
    case .wakesOwn: return !lacksThread || lockedBy == nil
    case .counts, .pushes, .signals, .asks, .falls, .looksOnce, .rises, .ends, .tells, .wakesNext,
      .sets:
      return true
    }
  }

  /// The next time at which a thread that sleeps would wake by itself; nil: there is none.
  var nextTime: UInt64? {
    var next = UInt64.max
    for thread in threads {
      switch thread.at {
      case .parked: if !thread.seesChange { next = min(next, thread.limit ?? .max) }
      case .polls: next = min(next, thread.limit ?? .max, timer ?? .max)
      case .watches: if role.isFree { next = min(next, timer ?? .max) }
      default: break
      }
    }
    return next > now && next != .max ? next : nil
  }

  mutating func pass(to time: UInt64) { now = time }

  // MARK: Steps

  mutating func step(_ i: Int) {
    switch threads[i].at {
    case .ready:
      threads[i].isSet = false
      threads[i].isNew = true
      if case .caller(true, _, true, _) = threads[i].kind, role.take(for: .item) {
        inbox.append(UInt8(i))
        threads[i].isNew = false
        drive(i)
      } else {
        threads[i].at = .pushes
      }
    case .counts:
      if threads[i].kind == .ender { isEnding = true } else { background += 1 }
      threads[i].at = .calls
    case .calls:
      let call = role.call()
      if threads[i].kind == .ender, call == .wakeLoop { wakeLocked() }
      threads[i].at = call == .wakeOwn ? .wakesOwn : threads[i].kind == .ender ? .seeks : .pushes
    case .pushes:
      let wasEmpty = inbox.isEmpty
      if role.holder != .over { inbox.append(item(of: i)) }
      threads[i].at = .signals
      if !wasEmpty { posted(i) }
    case .signals:
      threads[i].at = .kicks
      if !asleep { posted(i) }
      asleep = false
    case .kicks:
      if role.holder != .over { kick = true }
      if lacksThread { threads[i].at = .wakesOwn } else { posted(i) }
    case .seeks: seek(i)
    case .asks:
      wakeLocked()
      lockedBy = nil
      threads[i].at = .parked
    case .parked:
      if !threads[i].seesChange, threads[i].kind != .own { threads[i].isLate = true }
      threads[i].at = awake(i)
    case .settles:
      run()
      judge(i)
    case .handsOver:
      yieldWanted = false
      let next = nextWaiter(role.mayGive)
      threads[i].next = next ?? 0
      threads[i].at = role.handOver(to: next.map(UInt64.init)) ? .wakesNext : .falls
    case .falls:
      if inbox.isEmpty { asleep = true }
      threads[i].at = inbox.isEmpty ? .looksOnce : .rises
    case .looksOnce:
      let stays = !inbox.isEmpty || threads[i].isSet || yieldWanted || isEnding
      threads[i].at = stays ? .rises : .polls
    case .polls: threads[i].at = .rises
    case .rises:
      kick = false
      asleep = false
      if timer ?? .max <= now { timer = nil }
      if threads[i].limit ?? .max <= now { threads[i].isLate = true }
      threads[i].at = .settles
    case .ends:
      inbox = []
      timer = nil
      waiters = []
      for j in threads.indices {
        if threads[j].kind == .ender { threads[j].isSet = true }
        threads[j].seesChange = true
      }
      left(i)
    case .leaves: leave(i)
    case .tells:
      kick = false
      if !inbox.isEmpty { wakeLocked() }
      lockedBy = nil
      left(i)
    case .wakesNext:
      threads[threads[i].next].seesChange = true
      left(i)
    case .wakesOwn: wakeOwn(i)
    case .looks:
      threads[i].seesChange = false
      switch role.look(at: now, timer: role.isFree ? timer : nil) {
      case .drive:
        threads[i].limit = nil
        threads[i].at = .settles
      case .sleep(let until):
        threads[i].limit = until
        threads[i].at = .parked
      case .exit: threads[i].at = .done
      }
    case .watches: threads[i].at = role.holder == .over ? .done : .seeks
    case .sets:
      guard case .setter(let other) = threads[i].kind else { return }
      threads[other].isSet = true
      threads[other].seesChange = true
      threads[i].at = drives(other) ? .signals : .done
    case .tries:
      guard case .visitor(let purpose) = threads[i].kind else { return }
      if role.take(for: purpose) {
        asleep = false
        threads[i].at = .leaves
      } else {
        finish(i)
      }
    case .done: break
    }
  }

  private func item(of i: Int) -> UInt8 {
    switch threads[i].kind {
    case .background: 100 + Item.background.rawValue
    case .poster(let timer): 100 + (timer == nil ? Item.work : .timer).rawValue
    case .own, .caller, .setter, .visitor, .ender, .host: UInt8(i)
    }
  }

  private mutating func run() {
    for item in inbox {
      switch Item(rawValue: item &- 100) {
      case .work: break
      case .background: background -= 1
      case .timer: timer = now + 3
      case nil:
        threads[Int(item)].isSet = true
        threads[Int(item)].seesChange = true
      }
    }
    inbox = []
  }

  private mutating func wakeLocked() {
    if asleep { kick = true }
    asleep = false
  }

  /// The thread has posted its item, and woken the loop if it had to.
  private mutating func posted(_ i: Int) {
    if case .caller(_, true, _, _) = threads[i].kind { threads[i].at = .seeks } else { finish(i) }
  }

  private mutating func seek(_ i: Int) {
    var mayDrive = true
    var patience: UInt64?
    if case .caller(let may, _, _, let time) = threads[i].kind { (mayDrive, patience) = (may, time) }
    if threads[i].isNew {
      role.waitBegins()
      threads[i].limit = patience.map { now + $0 }
      threads[i].isNew = false
    }
    let isDone = threads[i].isSet || threads[i].isLate
    let sought = role.seek(
      UInt64(i), mayDrive: mayDrive, isDone: isDone, newAmong: threads[i].hasParked ? nil : waiters.count + 1,
      background: background != 0)
    threads[i].seesChange = false
    switch sought {
    case .drive:
      waiters.removeAll { $0 == i }
      drive(i)
      if isDone { threads[i].at = .leaves }
    case .done, .over:
      waiters.removeAll { $0 == i }
      // After the end, the shutdown still waits for the cell of the end.
      if threads[i].kind == .ender, !threads[i].isSet { threads[i].at = .parked } else { finish(i) }
    case .park(let asks):
      if threads[i].kind == .host {
        threads[i].at = .watches
        return
      }
      if !threads[i].hasParked { waiters.append(i) }
      threads[i].hasParked = true
      threads[i].at = asks ? .asks : .parked
      if asks {
        yieldWanted = true
        lockedBy = i
      }
    }
  }

  private mutating func drive(_ i: Int) {
    asleep = false
    // A host's turn polls the descriptors, and does not sleep.
    threads[i].at = threads[i].kind == .host ? .rises : .settles
  }

  private mutating func judge(_ i: Int) {
    if isEnding {
      role.end()
      threads[i].at = .ends
      return
    }
    switch threads[i].kind {
    case .own: threads[i].at = yieldWanted ? .handsOver : .falls
    case .host: threads[i].at = .leaves
    case .caller, .ender: threads[i].at = threads[i].isSet || threads[i].isLate ? .leaves : .falls
    case .poster, .background, .setter, .visitor: break
    }
  }

  private mutating func nextWaiter(_ may: Bool) -> Int? {
    let found = waiters.firstIndex { i in
      if case .caller(false, _, _, _) = threads[i].kind { return false }
      return !threads[i].isSet
    }
    return may ? found.map { waiters.remove(at: $0) } : nil
  }

  private mutating func leave(_ i: Int) {
    let next = nextWaiter(role.mayGive)
    let hurries = !inbox.isEmpty || background > 0 || isEnding
    threads[i].next = next ?? 0
    switch role.leave(to: next.map(UInt64.init), at: now, hurries: hurries, timer: timer) {
    case .wakeNext: threads[i].at = .wakesNext
    case .wakeOwn: threads[i].at = .wakesOwn
    case .tellHost:
      asleep = true
      lockedBy = i
      threads[i].at = .tells
    case .nothing: left(i)
    }
  }

  private mutating func wakeOwn(_ i: Int) {
    if lacksThread {
      let next = role.isFree ? nextWaiter(true) : nil
      role.ownFails(to: next.map(UInt64.init))
      asleep = true
      threads[i].next = next ?? 0
      if next != nil {
        threads[i].at = .wakesNext
        return
      }
    } else {
      threads[0].seesChange = true
    }
    left(i)
  }

  /// The thread has given the role up, or has woken another thread: goes on with what it does next.
  private mutating func left(_ i: Int) {
    switch threads[i].kind {
    case .own: threads[i].at = .looks
    case .background: threads[i].at = .pushes
    case .ender where !threads[i].isSet && threads[i].isNew: threads[i].at = .seeks
    case .caller(_, true, _, _) where threads[i].isNew: threads[i].at = .seeks
    case .host: threads[i].at = .watches
    case .caller, .poster, .setter, .visitor, .ender: finish(i)
    }
  }

  private mutating func finish(_ i: Int) {
    threads[i].rounds -= 1
    threads[i].isLate = false
    threads[i].hasParked = false
    threads[i].isSet = false
    threads[i].limit = nil
    if threads[i].rounds <= 0 {
      threads[i].at = .done
      return
    }
    switch threads[i].kind {
    case .caller: threads[i].at = .ready
    case .poster: threads[i].at = .pushes
    case .background: threads[i].at = .counts
    case .visitor: threads[i].at = .tries
    case .own, .setter, .ender, .host: threads[i].at = .done
    }
  }

  private func awake(_ i: Int) -> Place { threads[i].kind == .own ? .looks : .seeks }
}
