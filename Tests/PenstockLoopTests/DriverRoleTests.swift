import Testing

@testable import PenstockLoop

/// Every cell of the tables in DriverRole.swift. It is 100 now; the linger is 10.
@Suite struct DriverRoleTests {
  static let limits: DriverRole.Limits = {
    var limits = DriverRole.Limits(linger: 10)
    limits.shortestLook = 10
    limits.longestLook = 2
    limits.calmLooks = 2
    limits.crowdSize = 2
    limits.crowdLasts = 3
    return limits
  }()

  /// A state, and the steps that lead to it.
  static let states: [(name: String, role: DriverRole)] = [
    ("free", make { _ in }),
    ("free, late", make(at: 80) { _ in }),
    ("free, wanted", make { _ = $0.call() }),
    (
      "free, crowd",
      make { role in
        for _ in 0..<2 { _ = role.seek(1, mayDrive: false, isDone: false, newAmong: 2, background: false) }
      }
    ),
    (
      "free, wanted, crowd",
      make { role in
        crowd(&role); _ = role.leave(to: nil, at: 100, hurries: false, timer: nil)
      }
    ),
    ("own", make { drive(&$0) }),
    (
      "own, asked",
      make { role in
        drive(&role); _ = role.seek(1, mayDrive: true, isDone: false, newAmong: 1, background: false)
      }
    ),
    (
      "own, crowd",
      make { role in
        drive(&role); _ = role.seek(1, mayDrive: true, isDone: false, newAmong: 2, background: false)
      }
    ),
    ("caller", make { _ = $0.take(for: .item) }),
    (
      "caller, own looks at 115",
      make { role in
        _ = role.take(for: .item); _ = role.look(at: 95, timer: nil)
      }
    ),
    (
      "caller, own sleeps",
      make { role in
        _ = role.take(for: .item); for _ in 0..<3 { _ = role.look(at: 95, timer: nil) }
      }
    ),
    ("caller, crowd", make { crowd(&$0) }),
    (
      "given to 7",
      make { role in
        _ = role.take(for: .item); _ = role.leave(to: 7, at: 100, hurries: false, timer: nil)
      }
    ),
    ("held", make { _ = $0.take(for: .fork) }),
    ("over", make { $0.end() }),
    ("host, free", make(host: true) { _ in }),
    ("host, inherited", make(host: true) { $0.inherit(at: 95, wanted: true) }),
    ("host, caller", make(host: true) { _ = $0.take(for: .item) }),
  ]

  static let events: [(name: String, step: @Sendable (inout DriverRole) -> Any?)] = [
    ("waitBegins", { silent($0.waitBegins()) }),
    ("seek as 7", { $0.seek(7, mayDrive: true, isDone: false, newAmong: 1, background: false) }),
    ("seek as 7, many", { $0.seek(7, mayDrive: true, isDone: false, newAmong: 2, background: false) }),
    ("seek as 7, again", { $0.seek(7, mayDrive: true, isDone: false, newAmong: nil, background: false) }),
    ("seek as 7, done", { $0.seek(7, mayDrive: true, isDone: true, newAmong: 1, background: false) }),
    ("seek as 8", { $0.seek(8, mayDrive: true, isDone: false, newAmong: 1, background: false) }),
    ("seek as 8, may not", { $0.seek(8, mayDrive: false, isDone: false, newAmong: 1, background: false) }),
    ("seek as 8, background", { $0.seek(8, mayDrive: true, isDone: false, newAmong: 1, background: true) }),
    ("take for item", { $0.take(for: .item) }),
    ("take for inspection", { $0.take(for: .inspection) }),
    ("take for fork", { $0.take(for: .fork) }),
    ("leave", { $0.leave(to: nil, at: 100, hurries: false, timer: nil) }),
    ("leave, timer", { $0.leave(to: nil, at: 100, hurries: false, timer: 110) }),
    ("leave, hurries", { $0.leave(to: nil, at: 100, hurries: true, timer: nil) }),
    ("leave to 9", { $0.leave(to: $0.mayGive ? 9 : nil, at: 100, hurries: false, timer: nil) }),
    ("handOver", { $0.handOver(to: nil) }),
    ("handOver to 9", { $0.handOver(to: $0.mayGive ? 9 : nil) }),
    ("look", { $0.look(at: 100, timer: nil) }),
    ("look, timer", { $0.look(at: 100, timer: 101) }),
    ("look, due", { $0.look(at: 100, timer: 100) }),
    ("ownStarts", { silent($0.ownStarts(at: 100)) }),
    ("ownFails", { silent($0.ownFails(to: nil)) }),
    ("ownFails to 9", { silent($0.ownFails(to: $0.isFree ? 9 : nil)) }),
    ("call", { $0.call() }),
    ("end", { silent($0.end()) }),
    ("inherit", { silent($0.inherit(at: 100, wanted: true)) }),
    ("resume", { $0.resume() }),
  ]

  static func make(host: Bool = false, at time: UInt64 = 95, _ steps: (inout DriverRole) -> Void)
    -> DriverRole
  {
    var role = DriverRole(limits, hasOwnThread: !host)
    if host { role.inherit(at: time, wanted: false) } else { role.ownStarts(at: time) }
    steps(&role)
    return role
  }

  /// No answer: for events that have none.
  static func silent(_: Void) -> Any? { nil }

  static func drive(_ role: inout DriverRole) { _ = role.look(at: 105, timer: nil) }

  static func crowd(_ role: inout DriverRole) {
    _ = role.take(for: .item)
    _ = role.seek(1, mayDrive: true, isDone: false, newAmong: 2, background: false)
  }

  /// Whether the event can't happen in the state: an "x" in the tables.
  static func isImpossible(_ event: String, _ role: DriverRole) -> Bool {
    let word = event.prefix { $0.isLetter }
    let isHost = role.own == .none
    switch role.holder {
    case .free, .over:
      return ["leave", "handOver"].contains(word)
        || isHost && ["look", "ownStarts", "ownFails"].contains(word)
    case .own: return ["leave", "look", "ownStarts", "ownFails"].contains(word)
    case .caller, .held:
      return word == "handOver" || isHost && ["look", "ownStarts", "ownFails"].contains(word)
    case .given: return ["leave", "handOver", "end"].contains(word)
    }
  }

  /// The changes by an event, in words.
  static func told(_ state: DriverRole, _ step: (inout DriverRole) -> Any?) -> String {
    var role = state
    var words: [String] = []
    if let answer = step(&role) { words.append("\(answer)") }
    if role.holder != state.holder { words.append("-> \(role.holder)") }
    if role.own != state.own { words.append("own \(role.own)") }
    if role.crowd != state.crowd { words.append("crowd \(role.crowd)") }
    return words.joined(separator: " ").replacing("Optional", with: "")
  }

  /// For each state, what the events do that can happen in it. Events that change nothing are left out.
  static func actual() -> String {
    var lines: [String] = []
    for state in states {
      lines.append("\(state.name):")
      var rows: [(words: String, events: String)] = []
      for event in events where !isImpossible(event.name, state.role) {
        let words = told(state.role, event.step)
        if words.isEmpty { continue }
        if let i = rows.firstIndex(where: { $0.words == words }) {
          rows[i].events += "; " + event.name
        } else {
          rows.append((words, event.name))
        }
      }
      lines += rows.map { "  \($0.words) | \($0.events)" }
    }
    return lines.joined(separator: "\n")
  }

  @Test func everyEventDoesWhatTheTablesSay() {
    let actual = Self.actual().split(separator: "\n")
    let expected = Self.expected.split(separator: "\n")
    for (one, other) in zip(actual, expected) { #expect(one == other) }
    #expect(actual.count == expected.count)
  }

  static let expected = """
    free:
      drive -> caller | seek as 7; seek as 7, many; seek as 7, again; seek as 8; seek as 8, background
      done | seek as 7, done
      park(asks: false) | seek as 8, may not
      true -> caller | take for item; take for inspection
      true -> held | take for fork
      sleep(until: (105)) own looks(at: 105) | look
      sleep(until: (101)) own looks(at: 101) | look, timer
      drive -> own(asked: false) | look, due
      -> free(since: 100, wanted: false) | ownStarts
      own sleeps | ownFails
      -> given(to: 9) own sleeps | ownFails to 9
      wakeOwn -> free(since: 95, wanted: true) | call
      -> over | end
      -> free(since: 100, wanted: true) own sleeps | inherit
      false | resume
    free, late:
      drive -> caller | seek as 7; seek as 7, many; seek as 7, again; seek as 8; seek as 8, background
      done | seek as 7, done
      park(asks: false) | seek as 8, may not
      true -> caller | take for item; take for inspection
      true -> held | take for fork
      drive -> own(asked: false) | look; look, timer; look, due
      -> free(since: 100, wanted: false) | ownStarts
      own sleeps | ownFails
      -> given(to: 9) own sleeps | ownFails to 9
      wakeOwn -> free(since: 80, wanted: true) | call
      -> over | end
      -> free(since: 100, wanted: true) own sleeps | inherit
      false | resume
    free, wanted:
      drive -> caller | seek as 7; seek as 7, many; seek as 7, again; seek as 8; seek as 8, background
      done | seek as 7, done
      park(asks: false) | seek as 8, may not
      true -> caller | take for item; take for inspection
      true -> held | take for fork
      drive -> own(asked: false) | look; look, timer; look, due
      -> free(since: 100, wanted: true) | ownStarts
      -> free(since: 95, wanted: false) own sleeps | ownFails
      -> given(to: 9) own sleeps | ownFails to 9
      wakeOwn | call
      -> over | end
      -> free(since: 100, wanted: true) own sleeps | inherit
      true -> free(since: 95, wanted: false) | resume
    free, crowd:
      crowd 2 | waitBegins
      drive -> caller | seek as 7; seek as 7, many; seek as 7, again; seek as 8; seek as 8, background
      done | seek as 7, done
      park(asks: false) | seek as 8, may not
      false | take for item; resume
      true -> caller | take for inspection
      true -> held | take for fork
      sleep(until: (105)) own looks(at: 105) | look
      sleep(until: (101)) own looks(at: 101) | look, timer
      drive -> own(asked: false) | look, due
      -> free(since: 100, wanted: false) | ownStarts
      own sleeps crowd 0 | ownFails
      -> given(to: 9) own sleeps crowd 0 | ownFails to 9
      wakeOwn -> free(since: 95, wanted: true) | call
      -> over | end
      -> free(since: 100, wanted: true) own sleeps crowd 0 | inherit
    free, wanted, crowd:
      crowd 2 | waitBegins
      park(asks: false) | seek as 7; seek as 7, many; seek as 7, again; seek as 8; seek as 8, may not; seek as 8, background
      done | seek as 7, done
      false | take for item
      true -> caller | take for inspection
      true -> held | take for fork
      drive -> own(asked: false) | look; look, timer; look, due
      -> free(since: 100, wanted: false) own sleeps crowd 0 | ownFails
      -> given(to: 9) own sleeps crowd 0 | ownFails to 9
      wakeOwn | call
      -> over | end
      own sleeps crowd 0 | inherit
      true -> free(since: 100, wanted: false) | resume
    own:
      park(asks: true) -> own(asked: true) | seek as 7; seek as 7, again; seek as 8
      park(asks: false) crowd 3 | seek as 7, many
      done | seek as 7, done
      park(asks: false) | seek as 8, may not; seek as 8, background
      false | take for item; take for inspection; take for fork; handOver; resume
      true -> given(to: 9) | handOver to 9
      wakeLoop | call
      -> over | end
      -> free(since: 100, wanted: true) own sleeps | inherit
    own, asked:
      park(asks: false) | seek as 7; seek as 7, again; seek as 8; seek as 8, may not; seek as 8, background
      park(asks: false) crowd 3 | seek as 7, many
      done | seek as 7, done
      false | take for item; take for inspection; take for fork; resume
      false -> own(asked: false) | handOver
      true -> given(to: 9) | handOver to 9
      wakeLoop | call
      -> over | end
      -> free(since: 100, wanted: true) own sleeps | inherit
    own, crowd:
      crowd 2 | waitBegins
      park(asks: false) | seek as 7; seek as 7, many; seek as 7, again; seek as 8; seek as 8, may not; seek as 8, background
      done | seek as 7, done
      false | take for item; take for inspection; take for fork; handOver; handOver to 9; resume
      wakeLoop | call
      -> over | end
      -> free(since: 100, wanted: true) own sleeps crowd 0 | inherit
    caller:
      park(asks: false) | seek as 7; seek as 7, again; seek as 8; seek as 8, may not; seek as 8, background
      park(asks: false) crowd 3 | seek as 7, many
      done | seek as 7, done
      false | take for item; take for inspection; take for fork; resume
      nothing -> free(since: 100, wanted: false) | leave; leave, timer
      wakeOwn -> free(since: 100, wanted: true) | leave, hurries
      wakeNext -> given(to: 9) | leave to 9
      sleep(until: (120)) own looks(at: 120) | look; look, timer; look, due
      own sleeps | ownFails; ownFails to 9
      wakeLoop | call
      -> over | end
      -> free(since: 100, wanted: true) own sleeps | inherit
    caller, own looks at 115:
      park(asks: false) | seek as 7; seek as 7, again; seek as 8; seek as 8, may not; seek as 8, background
      park(asks: false) crowd 3 | seek as 7, many
      done | seek as 7, done
      false | take for item; take for inspection; take for fork; resume
      nothing -> free(since: 100, wanted: false) | leave
      wakeOwn -> free(since: 100, wanted: false) own awake | leave, timer
      wakeOwn -> free(since: 100, wanted: true) own awake | leave, hurries
      wakeNext -> given(to: 9) | leave to 9
      sleep(until: (110)) own looks(at: 110) | look; look, timer; look, due
      own awake | ownStarts
      own sleeps | ownFails; ownFails to 9
      wakeLoop | call
      -> over | end
      -> free(since: 100, wanted: true) own sleeps | inherit
    caller, own sleeps:
      park(asks: false) | seek as 7; seek as 7, again; seek as 8; seek as 8, may not; seek as 8, background
      park(asks: false) crowd 3 | seek as 7, many
      done | seek as 7, done
      false | take for item; take for inspection; take for fork; resume
      wakeOwn -> free(since: 100, wanted: false) own awake | leave; leave, timer
      wakeOwn -> free(since: 100, wanted: true) own awake | leave, hurries
      wakeNext -> given(to: 9) | leave to 9
      sleep(until: nil) | look; look, timer; look, due
      own awake | ownStarts
      wakeLoop | call
      -> over | end
      -> free(since: 100, wanted: true) | inherit
    caller, crowd:
      crowd 2 | waitBegins
      park(asks: false) | seek as 7; seek as 7, many; seek as 7, again; seek as 8; seek as 8, may not; seek as 8, background
      done | seek as 7, done
      false | take for item; take for inspection; take for fork; resume
      wakeOwn -> free(since: 100, wanted: true) | leave; leave, timer; leave, hurries; leave to 9
      sleep(until: (120)) own looks(at: 120) | look; look, timer; look, due
      own sleeps crowd 0 | ownFails; ownFails to 9
      wakeLoop | call
      -> over | end
      -> free(since: 100, wanted: true) own sleeps crowd 0 | inherit
    given to 7:
      drive -> caller | seek as 7; seek as 7, many; seek as 7, again; seek as 7, done
      park(asks: false) | seek as 8; seek as 8, may not; seek as 8, background
      false | take for item; take for inspection; take for fork; resume
      sleep(until: (120)) own looks(at: 120) | look; look, timer; look, due
      own sleeps | ownFails; ownFails to 9
      wakeLoop | call
      -> free(since: 100, wanted: true) own sleeps | inherit
    held:
      park(asks: false) | seek as 7; seek as 7, again; seek as 8; seek as 8, may not; seek as 8, background
      park(asks: false) crowd 3 | seek as 7, many
      done | seek as 7, done
      false | take for item; take for inspection; take for fork; resume
      nothing -> free(since: 100, wanted: false) | leave; leave, timer
      wakeOwn -> free(since: 100, wanted: true) | leave, hurries
      wakeNext -> given(to: 9) | leave to 9
      sleep(until: (120)) own looks(at: 120) | look; look, timer; look, due
      own sleeps | ownFails; ownFails to 9
      wakeLoop | call
      -> over | end
      -> free(since: 100, wanted: true) own sleeps | inherit
    over:
      over | seek as 7; seek as 7, many; seek as 7, again; seek as 7, done; seek as 8; seek as 8, may not; seek as 8, background
      false | take for item; take for inspection; take for fork; resume
      exit | look; look, timer; look, due
      own sleeps | ownFails; ownFails to 9; inherit
      nothing | call
    host, free:
      drive -> caller | seek as 7; seek as 7, many; seek as 7, again; seek as 8; seek as 8, background
      done | seek as 7, done
      park(asks: false) | seek as 8, may not
      true -> caller | take for item; take for inspection
      true -> held | take for fork
      wakeLoop | call
      -> over | end
      -> free(since: 100, wanted: true) | inherit
      false | resume
    host, inherited:
      drive -> caller | seek as 7; seek as 7, many; seek as 7, again; seek as 8; seek as 8, background
      done | seek as 7, done
      park(asks: false) | seek as 8, may not
      true -> caller | take for item; take for inspection
      true -> held | take for fork
      wakeLoop | call
      -> over | end
      -> free(since: 100, wanted: true) | inherit
      true -> free(since: 95, wanted: false) | resume
    host, caller:
      park(asks: false) | seek as 7; seek as 7, many; seek as 7, again; seek as 8; seek as 8, may not; seek as 8, background
      done | seek as 7, done
      false | take for item; take for inspection; take for fork; resume
      tellHost -> free(since: 100, wanted: false) | leave; leave, timer; leave, hurries
      wakeNext -> given(to: 9) | leave to 9
      wakeLoop | call
      -> over | end
      -> free(since: 100, wanted: true) | inherit
    """
}
