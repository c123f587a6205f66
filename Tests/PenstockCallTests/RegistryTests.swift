import PenstockWire
import Testing

@testable import PenstockCall

@Suite struct RegistryTests {
  private func registration(_ id: UInt64, _ pattern: String? = nil, kinds: UInt32 = 0) -> Registration {
    Registration(
      id: id, name: buffer("r\0"),
      filter: pattern.map { with($0) { MethodFilter(ByteBuffer(copying: $0)!)! } } ?? MethodFilter(),
      kinds: kinds, holdBytes: 0, userData: UserData(nil, nil), callbacks: Registration.Callbacks())
  }

  private func ids(_ entries: [Registry.Entry]) -> [UInt64] { entries.map { $0.registration.id } }
  private func chain(_ cache: inout ChainCache, _ path: String, _ kind: CallKind) -> Chain? {
    let path = buffer(path)
    return cache.chain(path.view, kind)
  }

  private func ids(_ chain: Chain?) -> [UInt64] { chain?.entries.map { $0.registration.id } ?? [] }

  private func same(_ chain: Chain?, _ expected: [UInt64]) { #expect(ids(chain) == expected) }

  private func merged(_ first: Registry, _ second: Registry, newestFirst: Bool = false) -> [Registry.Entry] {
    Registry.merged(
      first.ordered(newestFirst: newestFirst), second.ordered(newestFirst: newestFirst),
      newestFirst: newestFirst)
  }

  @Test func higherPriorityFirstThenRegistrationOrder() {
    var channel = Registry()
    var runtime = Registry()
    channel.add(registration(1), priority: 0)
    runtime.add(registration(2), priority: 0)
    channel.add(registration(3), priority: 5)
    runtime.add(registration(4), priority: -1)
    channel.add(registration(5), priority: 0)
    #expect(ids(merged(channel, runtime)) == [3, 1, 2, 5, 4])
    #expect(ids(merged(channel, runtime, newestFirst: true)) == [3, 5, 2, 1, 4])
    #expect(ids(merged(Registry(), Registry())) == [])
  }

  /// The entries stay sorted after each addition, change and removal: by priority, then by the order of first
  /// registration.
  @Test func anyHistoryLeavesASortedList() {
    struct Expected {
      var id: UInt64
      var turn: Int
      var priority: Int32
    }
    var random = Random(Seed.value)
    for _ in 0..<200 {
      var registries = [Registry(.runtime), Registry(.channel)]
      var expected: [[Expected]] = [[], []]
      var last: UInt64 = 0
      for turn in 0..<40 {
        let which = random.below(2)
        let priority: Int32 = random.pick([Int32.min, Int32.min + 1, -1, 0, 1, Int32.max])
        let place = expected[which].isEmpty ? 0 : random.below(expected[which].count)
        switch expected[which].isEmpty ? 0 : random.below(5) {
        case 0, 1:
          last += 1
          registries[which].add(registration(last), priority: priority)
          expected[which].append(Expected(id: last, turn: turn, priority: priority))
        case 2:
          let isMoved = registries[which].setPriority(expected[which][place].id, priority)
          #expect(isMoved)
          expected[which][place].priority = priority
        case 3:
          last += 1
          let old = registries[which].replace(expected[which][place].id, by: registration(last))
          #expect(old?.registration.id == expected[which][place].id)
          expected[which][place].id = last
        default:
          let gone = registries[which].remove(expected[which][place].id)
          #expect(gone?.registration.id == expected[which][place].id)
          expected[which].remove(at: place)
        }
      }
      let all = expected[0] + expected[1]
      let oldestFirst = all.sorted {
        $0.priority != $1.priority ? $0.priority > $1.priority : $0.turn < $1.turn
      }
      let newestFirst = all.sorted {
        $0.priority != $1.priority ? $0.priority > $1.priority : $0.turn > $1.turn
      }
      #expect(ids(merged(registries[0], registries[1])) == oldestFirst.map { $0.id })
      #expect(ids(merged(registries[0], registries[1], newestFirst: true)) == newestFirst.map { $0.id })
    }
  }

  @Test func aChangedFilterKeepsThePlace() {
    var registry = Registry()
    var cache = ChainCache()
    for id: UInt64 in 1...3 { registry.add(registration(id), priority: 0) }
    let isChanged = registry.setFilter(
      2, CallFilter(with("/a/*") { MethodFilter(ByteBuffer(copying: $0)!)! }, kinds: 1))
    let isOther = registry.setFilter(4, CallFilter())
    #expect(isChanged && !isOther)
    _ = cache.rebuild(registry.entries, 1, 1)
    same(chain(&cache, "/a/b", .unary), [1, 2, 3])
    same(chain(&cache, "/b/b", .unary), [1, 3])
    same(chain(&cache, "/a/b", .bidi), [1, 3])
    _ = registry.setFilter(2, CallFilter())
    _ = cache.rebuild(registry.entries, 2, 1)
    same(chain(&cache, "/b/b", .bidi), [1, 2, 3])
  }

  @Test func levelsStandAboveEachOther() {
    func at(_ level: Level, _ isPerAttempt: Bool, _ id: UInt64) -> Registration {
      Registration(
        id: id, name: buffer("r\0"), filter: MethodFilter(), kinds: 0, level: level,
        isPerAttempt: isPerAttempt,
        holdBytes: 0, userData: UserData(nil, nil), callbacks: Registration.Callbacks())
    }
    let chain = Chain([at(.bytes, true, 1), at(.both, true, 2), at(.bytes, false, 3), at(.object, false, 4)])
    same(chain, [2, 4, 3, 1, 2])
    #expect(chain.codecIndex == 2)
    #expect(chain.entries.map { $0.level } == [.object, .object, .bytes, .bytes, .bytes])
    #expect(chain.entries.map { $0.isPerAttempt } == [false, false, false, true, true])
  }

  @Test func callsAreCountedOnceForEachRegistration() {
    let both = Registration(
      id: 1, name: buffer("r\0"), filter: MethodFilter(), kinds: 0, level: .both, holdBytes: 0,
      userData: UserData(nil, nil), callbacks: Registration.Callbacks())
    let chain = Chain([both])
    chain.callBegan()
    chain.callBegan()
    chain.callEnded()
    #expect(both.calls == (2, 1))
  }

  @Test func everyChangeIsANewGeneration() {
    var registry = Registry()
    registry.add(registration(1), priority: 0)
    var last = registry.generation
    let isMoved = registry.setPriority(1, 7)
    #expect(isMoved && registry.generation != last)
    last = registry.generation
    let isFiltered = registry.setFilter(1, CallFilter())
    #expect(isFiltered && registry.generation != last)
    last = registry.generation
    let old = registry.replace(1, by: registration(1))
    #expect(old != nil && registry.generation != last)
    last = registry.generation
    registry.add(registration(3), priority: 0)
    #expect(registry.generation != last)
    last = registry.generation
    let isOtherMoved = registry.setPriority(2, 7)
    let other = registry.remove(2)
    #expect(!isOtherMoved && other == nil && registry.generation == last)
    let removed = registry.remove(1)
    #expect(removed?.registration.id == 1 && registry.generation != last)
    last = registry.generation
    let rest = registry.removeAll()
    #expect(ids(rest) == [3] && registry.generation != last)
  }

  @Test func cacheResolvesEachMethodOnce() {
    var cache = ChainCache()
    var registry = Registry()
    registry.add(registration(1), priority: 0)
    registry.add(registration(2, "/a/*"), priority: 0)
    registry.add(registration(3, kinds: 1 << 3), priority: 0)
    #expect(!cache.isCurrent(1, 2))
    _ = cache.rebuild(registry.entries, 1, 2)
    #expect(cache.isCurrent(1, 2))
    same(chain(&cache, "/a/b", .unary), [1, 2])
    same(chain(&cache, "/b/b", .unary), [1])
    same(chain(&cache, "/b/b", .bidi), [1, 3])
    let first = chain(&cache, "/a/b", .unary)
    let second = chain(&cache, "/a/b", .unary)
    #expect(second === first)
    // More methods are looked up than the cache keeps. The chains are right nevertheless.
    for number in 0..<5000 { same(chain(&cache, "/m\(number)/x", .unary), [1]) }
    same(chain(&cache, "/a/b", .unary), [1, 2])
  }

  @Test func aCallThatNobodyWantsHasNoChain() {
    var cache = ChainCache()
    let none = chain(&cache, "/a/b", .unary)
    #expect(none == nil)
    var registry = Registry()
    registry.add(registration(1, "/x/*"), priority: 0)
    _ = cache.rebuild(registry.entries, 1, 1)
    let still = chain(&cache, "/a/b", .unary)
    #expect(still == nil)
  }

  /// Law 6. The registry and the cache return the objects that they no longer keep, so that their owner can
  /// release them after it has unlocked its lock. The finalizer runs when the chain of the last call is
  /// released.
  @Test func finalizerRunsOnceWhenTheLastReferenceGoes() {
    final class Counter { var count = 0 }
    let counter = Counter()
    let pointer = Unmanaged.passUnretained(counter).toOpaque()
    var registry = Registry()
    var cache = ChainCache()
    registry.add(
      Registration(
        id: 1, name: buffer("r\0"), filter: MethodFilter(), kinds: 0, holdBytes: 0,
        userData: UserData(pointer) { Unmanaged<Counter>.fromOpaque($0!).takeUnretainedValue().count += 1 },
        callbacks: Registration.Callbacks()), priority: 0)
    _ = cache.rebuild(registry.entries, 1, 1)
    var chain = chain(&cache, "/a/b", .unary)
    var removed = registry.remove(1)
    var remains: ChainCache.Remains? = cache.invalidate()
    #expect(counter.count == 0)
    removed = nil
    remains = nil
    #expect(removed == nil && remains == nil)
    #expect(counter.count == 0, "a call has it still")
    chain = nil
    #expect(chain == nil)
    #expect(counter.count == 1)
  }

  /// Law 6: the chain of a side call (a call that a hop makes) has only interceptors below that hop, so the
  /// finalizers of all others do not wait for the side call.
  @Test func sideCallsKeepOnlyWhatTheyHave() {
    var registry = Registry()
    for id in 1...3 { registry.add(registration(UInt64(id)), priority: 0) }
    let parent = Chain(registry.entries)
    let side = Chain(registry.entries, below: parent.entries[1], newestFirst: false)
    same(side, [3])
    #expect(ids(side.sources) == [3])
  }
}

@Suite struct StationTests {
  @Test func fifoBehavesAsAnArray() {
    var random = Random(Seed.value)
    for _ in 0..<100 {
      var fifo = Fifo<Int>()
      var expected: [Int] = []
      for step in 0..<400 {
        switch random.below(10) {
        case 0..<5:
          fifo.append(step)
          expected.append(step)
        case 5..<8:
          let first = fifo.popFirst()
          #expect(first == expected.first)
          expected = Array(expected.dropFirst())
        case 8 where !expected.isEmpty:
          let index = random.below(expected.count)
          let removed = fifo.remove(at: index)
          #expect(removed == expected[index])
          expected.remove(at: index)
        default:
          let index = random.below(expected.count + 1)
          fifo.insert(-step, at: index)
          expected.insert(-step, at: index)
        }
        #expect(fifo.count == expected.count)
        #expect(fifo.isEmpty == expected.isEmpty)
        #expect(fifo.first == expected.first)
        #expect(fifo.last == expected.last)
      }
      #expect((0..<fifo.count).map { fifo[$0] } == expected)
      fifo.removeAll()
      let still = fifo.popFirst()
      #expect(still == nil)
    }
  }

  @Test func injectedGoesBeforeTheLastEventOfItsLane() {
    let station = Station()
    station.parked.append(
      Station.Parked(event: .send(Message()), wait: .hold(1)))
    station.inject(.send(Message()))
    station.parked.append(
      Station.Parked(event: .halfClose, wait: .pause(.ticket(2))))
    station.inject(.send(Message()))
    #expect(
      (0..<station.parked.count).map { station.parked[$0].event.kind } == [.send, .send, .send, .halfClose])
    #expect(station.index(of: 2) == 3)
    #expect(station.index(of: 1) == 0)
    #expect(station.index(of: 3) == nil)
    #expect(station.index(of: 0) == nil)
  }

  /// Two thousand events wait in a lane. Some have no ticket, and some have a ticket that was used already.
  /// Ticket numbers only increase, and are never used again.
  @Test func aTicketIsFoundAmongMany() {
    var random = Random(Seed.value)
    let station = Station()
    var places: [UInt64: Int] = [:]
    for index in 0..<2000 {
      let ticket = UInt64(index + 1001)
      if random.chance(30) {
        station.parked.append(
          Station.Parked(event: .send(Message()), wait: random.chance(50) ? .none : .next))
      } else {
        station.parked.append(Station.Parked(event: .send(Message()), wait: .hold(ticket)))
        if random.chance(50) { station.parked[index].wait = .none } else { places[ticket] = index }
      }
    }
    for ticket: UInt64 in 1..<5000 { #expect(station.index(of: ticket) == places[ticket]) }
  }

  @Test func nextReleasesWhatIsHeldWithoutATicket() {
    let station = Station()
    for ticket: UInt64 in [0, 5, 0] {
      station.parked.append(
        Station.Parked(event: .send(Message()), wait: ticket == 0 ? .next : .hold(ticket), isOwn: true))
      if ticket == 0 { station.ticketless += 1 }
    }
    station.releaseTicketless()
    #expect((0..<3).map { station.parked[$0].wait } == [.none, .hold(5), .none])
  }

  @Test func countsNeverWrap() {
    #expect(saturatingSum(1, 2) == 3)
    #expect(saturatingSum(Int.max, 1) == Int.max)
    #expect(saturatingSum(Int.max, Int.max) == Int.max)
    #expect(saturatingSum(Int.min, -1) == Int.min)
  }
}
