import PenstockCall
import PenstockTestSupport
import PenstockWire
import Testing

@testable import PenstockReady

/// Tests of the parts of telemetry and hedging that keep, count and plan.
@Suite struct ReadyPartsTests {
  /// The bytes of a span of this many bytes in the store: a tag, and the size, before the span.
  private func room(_ size: Int) -> Int { size + 2 }

  private func keep(_ store: SpanStore, _ sizes: Int...) {
    for size in sizes { store.keep(buffer([UInt8](repeating: 7, count: size))) }
  }

  private func figures(_ store: SpanStore) -> [UInt64] {
    let counts = store.figures
    return [counts.kept, counts.bytes, counts.taken, counts.dropped, counts.refused]
  }

  @Test func spansAreKeptWithinTheirBounds() {
    let few = SpanStore(most: 2, bytes: 1000)
    keep(few, 8, 9, 10)
    #expect(figures(few) == [2, UInt64(room(8) + room(9)), 0, 1, 0])
    let small = SpanStore(most: 100, bytes: room(8) + room(9))
    keep(small, 8, 10, 9, 0)
    #expect(figures(small) == [2, UInt64(room(8) + room(9)), 0, 2, 0])
    small.keep(nil)
    #expect(figures(small)[3] == 3)
  }

  @Test func theOldestSpansAreTaken() throws {
    let store = SpanStore(most: 100, bytes: 1000)
    keep(store, 8, 9, 10)
    func oldest(_ number: Int, _ bytes: Int) throws -> [Int] {
      let (spans, count) = try #require(store.oldest(number, bytes: bytes))
      return [spans.count, count]
    }
    #expect(try oldest(.max, .max) == [room(8) + room(9) + room(10), 3])
    #expect(try oldest(2, .max) == [room(8) + room(9), 2])
    #expect(try oldest(0, .max) == [0, 0])
    #expect(try oldest(.max, room(8) + room(9)) == [room(8) + room(9), 2])
    #expect(try oldest(.max, room(8) + room(9) - 1) == [room(8), 1])
    // One span is taken however large it is.
    #expect(try oldest(.max, 1) == [room(8), 1])
    let (spans, count) = try #require(store.oldest(2, bytes: .max))
    store.remove(spans, count, refused: 1)
    #expect(figures(store) == [1, UInt64(room(10)), 1, 0, 1])
    #expect(try oldest(.max, .max) == [room(10), 1])
    let (rest, one) = try #require(store.oldest(.max, bytes: .max))
    store.remove(rest, one, refused: 0)
    #expect(figures(store) == [0, 0, 2, 0, 1])
    keep(store, 4)
    #expect(figures(store) == [1, UInt64(room(4)), 2, 0, 1])
  }

  @Test func oneThreadTakesSpansAtATime() {
    let store = SpanStore(most: 1, bytes: 100)
    #expect(store.beginTaking() && !store.beginTaking() && !store.beginTaking())
    store.endTaking()
    #expect(store.beginTaking() && !store.beginTaking())
  }

  // MARK: - Methods

  private func method(_ telemetry: Telemetry, _ path: String, _ target: String) -> Int {
    let (path, target) = (bytes(path), bytes(target))
    return withExtendedLifetime((path, target)) { telemetry.method(path.view, target.view) }
  }

  @Test func methodsAreCountedByNameAndTarget() {
    var options = Telemetry.Options()
    options.maxMethods = 3
    let telemetry = Telemetry(options)
    #expect(method(telemetry, "/a/b", "ipv4:10.0.0.1:80") == 0)
    #expect(method(telemetry, "/a/c", "ipv4:10.0.0.1:80") == 1)
    #expect(method(telemetry, "/a/b", "ipv4:10.0.0.1:81") == 2)
    #expect(method(telemetry, "/a/d", "ipv4:10.0.0.1:80") == 3)
    #expect(method(telemetry, "/a/e", "ipv4:10.0.0.1:80") == 3)
    #expect(
      method(telemetry, "/a/b", "ipv4:10.0.0.1:80") == 0 && method(telemetry, "/a/b", "ipv4:10.0.0.1:81") == 2
    )
    #expect(telemetry.methodCount == 4)
    telemetry.read { methods, _ in
      #expect(methods.map { text($0.name) } == ["a/b", "a/c", "a/b", nil])
      #expect(methods[3].target == nil && methods[3].shownTarget == nil)
    }
  }

  @Test(arguments: [
    ("/opentelemetry.proto.collector.trace.v1.TraceService/Export", true),
    ("/opentelemetry.proto.collector.", true),
    ("/opentelemetry.proto.collector", false), ("/opentelemetry.proto.x.collector.a/b", false),
    ("/a/b", false),
    ("", false),
  ])
  func exportsAreNotRecorded(path: String, isExport: Bool) {
    let given = bytes(path)
    #expect(Telemetry.isExport(given.view) == isExport)
    withExtendedLifetime(given) {}
  }

  @Test func valuesFallIntoTheirBuckets() {
    var histogram = Histogram()
    #expect(histogram.count == 0 && histogram.buckets.isEmpty)
    for value in [0, 1, 10, 11, 20, 21, 1000] as [UInt64] { histogram.record(value, [0, 10, 20]) }
    #expect(histogram.buckets == [1, 2, 2, 2] && histogram.count == 7 && histogram.sum == 1063)
  }

  @Test func theLastFailureOfExportsIsKept() {
    let tally = ExportTally()
    #expect(tally.figures.sent == 0 && tally.figures.failed == 0 && tally.figures.failure == nil)
    let (failed, warning) = (Status(.unavailable, "no"), Status(.ok, "half"))
    tally.note(Status(.ok), nil)
    #expect(tally.figures.sent == 1 && tally.figures.failed == 0 && tally.figures.failure == nil)
    tally.note(failed, nil)
    #expect(tally.figures.sent == 2 && tally.figures.failed == 1 && tally.figures.failure === failed)
    tally.note(Status(.ok), nil)
    #expect(tally.figures.sent == 3 && tally.figures.failed == 1 && tally.figures.failure === failed)
    tally.note(Status(.ok), warning)
    #expect(tally.figures.sent == 4 && tally.figures.failed == 1 && tally.figures.failure === warning)
    tally.note(failed, warning)
    #expect(tally.figures.failed == 2 && tally.figures.failure === failed)
  }

  // MARK: - The plan of a hedged call

  @Test func attemptsFollowUpToTheirNumber() {
    for delay in [0, 5] as [UInt64] {
      var plan = HedgePlan(most: 3, delay: delay)
      #expect(plan.mayFollow)
      for number in 1...3 {
        #expect(plan.take() == number && plan.sent == number)
        #expect(plan.afterSend == (number == 3 ? .rest : delay == 0 ? .send : .wait(delay)))
      }
      #expect(!plan.mayFollow && plan.take() == nil && plan.sent == 3)
      #expect(plan.failed(.none) == .rest && plan.failed(.after(9)) == .rest && plan.failed(.never) == .give)
    }
  }

  @Test func aFailureBringsTheNextAttempt() {
    var plan = HedgePlan(most: 4, delay: 5)
    #expect(plan.take() == 1 && plan.failed(.none) == .send)
    #expect(plan.take() == 2 && plan.failed(.after(7)) == .wait(7))
    #expect(
      plan.take() == 3 && plan.take() == 4 && plan.failed(.none) == .rest && plan.failed(.none) == .give)
    var stopped = HedgePlan(most: 4, delay: 5)
    #expect(stopped.take() == 1 && stopped.take() == 2)
    #expect(stopped.failed(.never) == .rest && !stopped.mayFollow && stopped.afterSend == .rest)
    #expect(stopped.take() == nil && stopped.failed(.none) == .give)
  }

  @Test func aPlanEndsWhereNoAttemptMayFollow() {
    var plan = HedgePlan(most: 3, delay: 5)
    #expect(plan.take() == 1 && plan.notSent() == .send && plan.sent == 0)
    #expect(plan.take() == 1 && plan.take() == 2 && !plan.mayFollow)
    #expect(plan.notSent() == .rest && plan.sent == 1 && !plan.mayFollow && plan.failed(.none) == .give)
    var held = HedgePlan(most: 3, delay: 5)
    #expect(held.take() == 1 && held.stop() == .rest && !held.mayFollow && held.failed(.none) == .give)
    var none = HedgePlan(most: 3, delay: 5)
    #expect(none.take() == 1 && none.failed(.none) == .send && none.stop() == .give)
  }
}
