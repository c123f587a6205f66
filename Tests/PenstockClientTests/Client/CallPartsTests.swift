import PenstockTestSupport
import PenstockWire
import Testing

@testable import PenstockCall
@testable import PenstockClient

/// Tests of small parts of calls: the path cache, the send budget, the trace's log, options, and who is woken.
@Suite struct CallPartsTests {
  private func path(_ length: Int, _ last: Character = "c") -> ByteBuffer {
    bytes("/a/" + String(repeating: "b", count: length - 4) + String(last))
  }

  @Test func pathsAreSharedUpToALength() {
    for (length, isShared) in [(4, true), (100, true), (199, true), (200, true), (201, false), (500, false)] {
      let cache = PathCache()
      func find(_ path: ByteBuffer) -> ByteBuffer? {
        withExtendedLifetime(path) {
          let (outcome, found) = cache.find(path.view)
          #expect(outcome == .ok && found.map { text($0) } == text(path)! + "\0")
          return found
        }
      }
      let first = find(path(length))
      #expect((first === find(path(length))) == isShared, "\(length)")
      // A path with the same length and the same end has the same slot, which the first one keeps.
      let other = bytes("/d/" + text(path(length))!.dropFirst(3))
      #expect(find(other) !== find(other))
      #expect((first === find(path(length))) == isShared)
      #expect(first !== find(path(length, "x")))
    }
    let cache = PathCache()
    for wrong in ["", "/", "/a", "a/b", "/a/", "/a b/c"] {
      let given = bytes(wrong)
      #expect(cache.find(given.view).0 == .invalidArgument)
      withExtendedLifetime(given) {}
    }
  }

  @Test func theSendBudgetIsSpentToItsLastByte() throws {
    #expect(SendBudget.make(0) == nil && SendBudget.make(-1) == nil)
    let budget = try #require(SendBudget.make(10))
    #expect(budget.hasRoom(10) && !budget.hasRoom(11))
    budget.take(4)
    #expect(budget.hasRoom(6) && !budget.hasRoom(7))
    budget.take(6)
    #expect(budget.hasRoom(0) && !budget.hasRoom(1))
    budget.giveBack(5)
    #expect(budget.hasRoom(5) && !budget.hasRoom(6))
    #expect(try #require(SendBudget.make(1)).hasRoom(1))
  }

  private func note(_ number: Int) -> TraceNote {
    TraceNote(
      what: .caller, event: .send, hop: -1, attempt: 0, verdict: nil, detail: number, time: 0, thread: 0,
      isDriving: false)
  }

  @Test(arguments: [1, 2, 3, 15, 16, 17, 40, 100]) func aTraceKeepsTheLatest(limit: Int) throws {
    let log = TraceLog(nil, limit)
    for count in 0...100 {
      let events = try #require(log.copy())
      let first = max(count - limit, 0)
      #expect((0..<events.count).map { events.notes[$0].detail } == Array(first..<count))
      #expect(events.dropped == UInt64(first))
      log.note(note(count))
    }
  }

  @Test func optionsGoBeforeDefaults() {
    var defaults = CallDefaults()
    defaults.compression = .gzip
    defaults.compressionUse = .from(bytes: 7)
    defaults.maxReceiveBytes = 8
    defaults.maxSendBytes = 9
    defaults.waitsForReady = true
    func check(_ made: CallSettings, _ compression: Compression, _ sizes: [Int], waits: Bool) {
      #expect(made.compression == compression && made.waitsForReady == waits)
      #expect(made.compressionUse == .from(bytes: Int32(sizes[0])))
      #expect(made.maxReceiveBytes == sizes[1] && made.maxSendBytes == sizes[2])
    }
    check(defaults.settings, .gzip, [7, 8, 9], waits: true)
    let options = CallOptions()
    check(options.settings(defaults), .gzip, [7, 8, 9], waits: true)
    #expect(options.settings(defaults).idempotency == .unknown && options.settings(defaults).allowsGET)
    #expect(options.settings(defaults).credentials == nil)
    options.compression = .deflate
    options.compressionUse = .from(bytes: 1)
    options.maxReceiveBytes = 2
    options.maxSendBytes = 3
    options.waitsForReady = false
    options.idempotency = .noSideEffects
    options.allowsGET = false
    options.credentials = Metadata()
    let made = options.settings(defaults)
    check(made, .deflate, [1, 2, 3], waits: false)
    #expect(made.idempotency == .noSideEffects && !made.allowsGET && made.credentials === options.credentials)
  }

  // MARK: - Waiting

  @Test func aPromisedHalfCloseIsExpectedForFiveSeconds() {
    let second: UInt64 = 1_000_000_000
    let care = WaitCare()
    #expect(!care.expectsHalfClose(sent: 0, inFlight: 0, now: 0))
    care.isPromised = true
    #expect(care.expectsHalfClose(sent: 0, inFlight: 0, now: second))
    #expect(care.expectsHalfClose(sent: 0, inFlight: 0, now: 6 * second - 1))
    #expect(!care.expectsHalfClose(sent: 0, inFlight: 0, now: 6 * second))
    // A further message, or one on its way, begins the time anew.
    #expect(care.expectsHalfClose(sent: 1, inFlight: 0, now: 7 * second))
    #expect(!care.expectsHalfClose(sent: 1, inFlight: 0, now: 12 * second))
    #expect(care.expectsHalfClose(sent: 1, inFlight: 1, now: 20 * second))
    #expect(care.expectsHalfClose(sent: 1, inFlight: 0, now: 25 * second - 1))
    #expect(!care.expectsHalfClose(sent: 1, inFlight: 0, now: 25 * second))
  }

  /// Takes the waiters for the news; they belong to this thread.
  private func told(_ waiters: inout CallWaiters, _ news: Awaited) -> [CallWaiter] {
    let (one, isOwn, more) = waiters.awaiting(news)
    guard let one else {
      #expect(more.isEmpty)
      return []
    }
    #expect(isOwn)
    return [one.takeUnretainedValue()] + more
  }

  @Test func onlyThoseWhoWaitForTheNewsAreTold() {
    var waiters = CallWaiters()
    #expect(!waiters.isAwaited(.message) && !waiters.isAwaited(.end) && told(&waiters, .end).isEmpty)
    let all = ([.headers, .message, .message, .room, .end] as [Awaited]).map { CallWaiter($0) }
    for waiter in all { waiters.add(waiter) }
    for news in [.headers, .message, .room, .end] as [Awaited] { #expect(waiters.isAwaited(news)) }
    #expect(told(&waiters, .message) == [all[2], all[1]])
    // They are told once, until they have looked.
    #expect(!waiters.isAwaited(.message) && told(&waiters, .message).isEmpty)
    #expect(waiters.isAwaited(.headers) && waiters.isAwaited(.room) && waiters.isAwaited(.end))
    waiters.renew(all[1])
    #expect(waiters.isAwaited(.message) && told(&waiters, .message) == [all[1]])
    waiters.remove(all[3])
    #expect(!waiters.isAwaited(.room) && told(&waiters, .room).isEmpty && waiters.isAwaited(.headers))
    waiters.renew(all[2])
    #expect(told(&waiters, .end) == [all[0], all[2], all[4]])
    #expect(!waiters.isAwaited(.end) && !waiters.isAwaited(.message))
    waiters.renew(all[0])
    #expect(waiters.isAwaited(.end) && waiters.isAwaited(.headers) && !waiters.isAwaited(.message))
    for waiter in all { waiters.remove(waiter) }
    #expect(!waiters.isAwaited(.end) && told(&waiters, .end).isEmpty)
    withExtendedLifetime(all) {}
  }

  @Test func waitersAreSetWithoutALoop() {
    var waiters = CallWaiters()
    let all = [CallWaiter(.headers), CallWaiter(.end)]
    for waiter in all { waiters.add(waiter) }
    waiters.setUnshared()
    #expect(all.allSatisfy { $0.isSet })
  }
}

extension CallWaiter: Equatable {
  public static func == (one: CallWaiter, other: CallWaiter) -> Bool { one === other }
}
