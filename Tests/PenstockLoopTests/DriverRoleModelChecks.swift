@testable import PenstockLoop

/// The conditions that hold in each state of the model, and the rule by which two states are one.
extension DriverRoleModel {
  // MARK: What has to hold

  func drives(_ i: Int) -> Bool {
    switch threads[i].at {
    case .settles, .falls, .looksOnce, .polls, .rises, .leaves, .handsOver: true
    case .ready, .counts, .calls, .pushes, .signals, .kicks, .seeks, .asks, .parked, .ends, .tells,
      .wakesNext, .wakesOwn, .looks, .watches, .sets, .tries, .done:
      false
    }
  }

  /// Whether all work is done: no thread waits, and nothing is left to be run.
  var isFinished: Bool {
    inbox.isEmpty && timer == nil
      && threads.allSatisfy { $0.at == .done || $0.kind == .own || $0.kind == .host }
  }

  /// The sentence that is not true of this state; nil: all is well.
  var broken: String? {
    let driving = threads.indices.filter(drives)
    if driving.count > 1 { return "two threads drive" }
    switch role.holder {
    case .free, .given, .over: if !driving.isEmpty { return "a thread drives that has not the role" }
    case .own(let asked):
      if driving.first.map({ threads[$0].kind }) != .own {
        return "the role is the own thread's, which does not drive"
      }
      if asked != yieldWanted { return "the own thread can't see whether it is asked" }
    case .caller, .held: if driving.isEmpty { return "the role is a thread's that does not drive" }
    }
    return runnable.isEmpty ? brokenSleep : nil
  }

  /// Checked while no thread can go on before time passes.
  private var brokenSleep: String? {
    if isFinished { return nil }
    let parked = threads.indices.filter { threads[$0].at == .parked && threads[$0].kind != .own }
    if nextTime == nil { return "all sleep for ever while work waits" }
    if parked.contains(where: { threads[$0].isSet }) { return "a thread sleeps whose wait is over" }
    if timer ?? .max <= now { return "all sleep although a timer is due" }
    switch role.holder {
    case .given: return "a thread sleeps that has got the role"
    case .own, .caller, .held: return inbox.isEmpty ? nil : "the driver sleeps while an item waits"
    case .over: return "all sleep after the end"
    case .free(_, let wanted):
      if wanted || background > 0 { return "all sleep while the own thread is wanted" }
      if parked.contains(where: mayDrive) { return "a thread is parked although it could drive" }
      if let timer, nextTime ?? .max > timer { return "all sleep for longer than a timer" }
      let longest = now + Self.limits.shortestLook * Self.limits.longestLook
      return inbox.isEmpty || nextTime ?? .max <= longest ? nil : "an item waits for too long"
    }
  }

  private func mayDrive(_ i: Int) -> Bool {
    if case .caller(let mayDrive, _, _, _) = threads[i].kind { mayDrive } else { true }
  }

  // MARK: States that are the same

  /// All that decides how the model goes on. Times count from now; a time in the past counts as now, or as the
  /// linger before it.
  var key: [UInt8] {
    func from(_ time: UInt64?) -> UInt8 { time.map { UInt8(clamping: $0 <= now ? 0 : $0 - now) } ?? 255 }
    func bits(_ all: Bool...) -> UInt8 { all.reduce(0) { $0 << 1 | ($1 ? 1 : 0) } }
    var key: [UInt8] = []
    key.reserveCapacity(24 + threads.count * 5)
    switch role.holder {
    case .free(let since, let wanted): key += [0, UInt8(min(now - since, Self.limits.linger)), bits(wanted)]
    case .own(let asked): key += [1, 0, bits(asked)]
    case .caller: key += [2, 0, 0]
    case .given(let next): key += [3, UInt8(next), 0]
    case .held: key += [4, 0, 0]
    case .over: key += [5, 0, 0]
    }
    switch role.own {
    case .none: key.append(253)
    case .awake: key.append(254)
    case .looks(let at): key.append(from(at))
    case .sleeps: key.append(255)
    }
    key += [
      UInt8(role.crowd), UInt8(role.sleep), UInt8(role.looks), from(timer), lockedBy.map { UInt8($0) } ?? 255,
    ]
    key.append(bits(role.hasTurned, asleep, kick, yieldWanted, isEnding))
    key.append(UInt8(background))
    for thread in threads {
      key.append(thread.at.rawValue)
      key.append(UInt8(thread.rounds))
      let parks = thread.at == .parked || thread.at == .asks
      key.append(
        bits(parks && thread.seesChange, thread.isSet, thread.isNew, thread.isLate, thread.hasParked))
      key.append(from(thread.limit))
      key.append(thread.at == .wakesNext ? UInt8(thread.next) : 0)
    }
    key.append(UInt8(inbox.count))
    key += inbox
    key += waiters.map { UInt8($0) }
    return key
  }
}
