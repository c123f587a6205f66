import Testing

@testable import PenstockLoop

/// `DriverRole` under threads: all interleavings of a few, and random ones of more. In each state: at most one thread
/// drives, and it is the one that has the role; not all threads sleep while work waits, except as long as the linger
/// allows. From each state the work can be brought to its end.
@Suite struct DriverRoleModelTests {
  typealias Kind = DriverRoleModel.Kind
  static let caller = Kind.caller(mayDrive: true, posts: true, direct: false, patience: nil)
  static let direct = Kind.caller(mayDrive: true, posts: true, direct: true, patience: nil)
  static let passive = Kind.caller(mayDrive: false, posts: true, direct: false, patience: nil)
  static let impatient = Kind.caller(mayDrive: true, posts: false, direct: false, patience: 3)
  static let waiting = Kind.caller(mayDrive: true, posts: false, direct: false, patience: nil)

  struct Scene: CustomTestStringConvertible, Sendable {
    let testDescription: String
    let kinds: [(Kind, Int)]
    var host = false
    var lacksThread = false
    var model: DriverRoleModel { DriverRoleModel(kinds, host: host, lacksThread: lacksThread) }
  }

  static let scenes = [
    Scene(
      testDescription: "callers and a poster",
      kinds: [(.own, 1), (caller, 1), (direct, 1), (.poster(timer: nil), 1)]),
    Scene(
      testDescription: "a caller twice, and a timer", kinds: [(.own, 1), (direct, 2), (.poster(timer: 3), 1)]),
    Scene(
      testDescription: "callers that may not drive",
      kinds: [(.own, 1), (passive, 1), (caller, 1), (.poster(timer: nil), 1)]),
    Scene(
      testDescription: "work in the background",
      kinds: [(.own, 1), (caller, 1), (caller, 1), (.background, 1)]),
    Scene(testDescription: "a crowd", kinds: [(.own, 1), (caller, 1), (caller, 1), (caller, 1)]),
    Scene(
      testDescription: "a deadline, and a cell that another thread sets",
      kinds: [(.own, 1), (impatient, 1), (waiting, 1), (.setter(2), 1)]),
    Scene(testDescription: "a fork", kinds: [(.own, 1), (caller, 1), (impatient, 1), (.visitor(.fork), 1)]),
    Scene(
      testDescription: "a look",
      kinds: [(.own, 1), (caller, 1), (.visitor(.inspection), 1), (.poster(timer: 3), 1)]),
    Scene(testDescription: "the end", kinds: [(.own, 1), (caller, 1), (caller, 1), (.ender, 1)]),
    Scene(
      testDescription: "a host", kinds: [(.host, 1), (caller, 1), (direct, 1), (.poster(timer: 3), 1)],
      host: true),
    Scene(
      testDescription: "a child without a thread", kinds: [(.own, 1), (caller, 1), (caller, 1), (caller, 1)],
      lacksThread: true),
  ]

  @Test(arguments: scenes) func noInterleavingLosesAWakeUp(_ scene: Scene) {
    var search = Search(scene.model)
    if let broken = search.run() { Issue.record("\(scene.testDescription): \(broken)") }
    #expect(search.count > 500)
  }

  @Test func randomInterleavingsOfMoreThreadsLoseNone() {
    let kinds: [(Kind, Int)] = [
      (Self.caller, 3), (Self.direct, 3), (Self.direct, 2), (Self.passive, 2), (Self.impatient, 1),
      (.background, 2), (.poster(timer: 3), 2), (.visitor(.inspection), 2), (.visitor(.fork), 1),
    ]
    for seed in 1...2_000 {
      var random = Shuffle(state: UInt64(seed))
      let isHost = seed % 4 == 0
      var all: [(Kind, Int)] = [isHost ? (.host, 1) : (.own, 1)]
      for other in kinds where random.next() % 4 != 0 { all.append(other) }
      var model = DriverRoleModel(all, host: isHost)
      var path: [Int] = []
      while true {
        if let broken = model.broken {
          Issue.record("seed \(seed): \(broken), after \(path)")
          return
        }
        let ready = model.runnable
        if let time = model.nextTime, ready.isEmpty || random.next() % 16 == 0 {
          model.pass(to: time)
          path.append(-1)
        } else if let next = ready.isEmpty ? nil : ready[Int(random.next() % UInt64(ready.count))] {
          model.step(next)
          path.append(next)
        } else {
          break
        }
      }
      #expect(model.isFinished, "seed \(seed)")
    }
  }
}

/// Visits every state that a model can get into.
private struct Search {
  private var known: [[UInt8]: Int] = [:]
  /// For each state: the one that it was first reached from, and the thread that went on (-1: time).
  private var origins: [(state: Int, thread: Int)] = []
  private var edges: [(from: Int, to: Int)] = []
  private var finished: [Int] = []
  private var open: [(model: DriverRoleModel, state: Int)] = []
  private let start: DriverRoleModel

  init(_ model: DriverRoleModel) { start = model }

  var count: Int { known.count }

  /// The first sentence that does not hold in a state, and how the model gets into that state; nil: all hold.
  mutating func run() -> String? {
    _ = reach(start, from: 0, by: -1)
    while let (model, state) = open.popLast() {
      if let broken = model.broken { return "\(broken): \(path(to: state))" }
      if model.isFinished { finished.append(state) }
      for thread in model.runnable {
        var next = model
        next.step(thread)
        edges.append((state, reach(next, from: state, by: thread)))
      }
      if let time = model.nextTime {
        var next = model
        next.pass(to: time)
        edges.append((state, reach(next, from: state, by: -1)))
      }
    }
    return stuck().map { "the work can't end: \(path(to: $0))" }
  }

  private mutating func reach(_ model: DriverRoleModel, from state: Int, by thread: Int) -> Int {
    let key = model.key
    if let index = known[key] { return index }
    let index = known.count
    known[key] = index
    origins.append((state, thread))
    open.append((model, index))
    return index
  }

  /// A state from which no finished state can be reached.
  private func stuck() -> Int? {
    var before = Array(repeating: [Int](), count: known.count)
    for (from, to) in edges { before[to].append(from) }
    var isGood = Array(repeating: false, count: known.count)
    var next = finished
    for state in finished { isGood[state] = true }
    while let state = next.popLast() {
      for one in before[state] where !isGood[one] {
        isGood[one] = true
        next.append(one)
      }
    }
    return isGood.firstIndex(of: false)
  }

  private func path(to state: Int) -> String {
    var steps: [Int] = []
    var at = state
    while at != 0 {
      steps.append(origins[at].thread)
      at = origins[at].state
    }
    var model = start
    var told: [String] = []
    for thread in steps.reversed() {
      if thread < 0 {
        if let time = model.nextTime { model.pass(to: time) }
        told.append("time")
      } else {
        told.append("\(thread) \(model.threads[thread].at)")
        model.step(thread)
      }
    }
    return told.joined(separator: ", ")
  }
}

/// Makes random numbers (SplitMix64). The mutations run this file without the other tests.
private struct Shuffle {
  var state: UInt64
  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
    return z ^ (z >> 31)
  }
}
