import PenstockWire
import Testing

@testable import PenstockCall

/// Response headers wait at a hop that may RESTART until it has decided about the event behind them.
@Suite struct HeadersTests {
  /// Makes a call with three hops, of which hop 1 records, and restarts after UNAVAILABLE.
  private func bench(
    _ kind: CallKind, headersWait: UInt32 = Registration.defaultHeadersWait, replayBytes: Int = 100
  ) -> CallBench {
    let bench = CallBench(
      kind, hops: 3, replayBytes: [0, replayBytes, 0], headersWait: headersWait, signals: false)
    bench.hooks[1].on[.status] = { hop in hop.status?.code == .unavailable ? 5 : 0 }
    return bench
  }

  private func openWhole(_ bench: CallBench) {
    bench.perform(.open(demand: 2, message: CallBench.message(3)))
    bench.log = []
  }

  private func headers(_ bench: CallBench) { bench.perform(.headersFromBelow(Metadata())) }
  private func message(_ bench: CallBench) { bench.perform(.messageFromBelow(CallBench.message(4))) }
  private func fail(_ bench: CallBench) { bench.perform(.statusFromBelow(Status(.unavailable))) }

  @Test func headersGoWithTheMessageBehindThem() {
    let bench = bench(.unary)
    openWhole(bench)
    headers(bench)
    #expect(bench.take() == ["2 on_headers", "1 on_headers"])
    message(bench)
    #expect(
      bench.take() == [
        "2 on_receive", "1 on_receive", "0 on_headers", "caller headers", "0 on_receive", "caller message 4",
      ])
    fail(bench)
    #expect(bench.status?.code == .unavailable)
  }

  @Test func aRestartDiscardsThem() {
    let bench = bench(.unary)
    openWhole(bench)
    headers(bench)
    bench.log = []
    fail(bench)
    #expect(
      bench.take() == [
        "2 on_status", "1 on_status", "2 destroy", "caller sent 1", "2 on_start", "server start", "pull",
        "2 on_send",
        "server message 3", "2 on_half_close", "server half-close",
      ])
    // The hop can't restart once more: so the headers of the second answer need not wait.
    headers(bench)
    #expect(bench.take() == ["2 on_headers", "1 on_headers", "0 on_headers", "caller headers"])
    message(bench)
    bench.perform(.statusFromBelow(Status(.ok)))
    #expect(bench.status?.code == .ok)
  }

  @Test func theyGoBeforeAStatusThatPasses() {
    let bench = bench(.unary)
    openWhole(bench)
    headers(bench)
    bench.log = []
    bench.perform(.statusFromBelow(Status(.notFound)))
    #expect(
      bench.take().prefix(5) == [
        "2 on_status", "1 on_status", "0 on_headers", "caller headers", "0 on_status",
      ])
  }

  @Test func theyWaitWhileTheStatusDoes() {
    let bench = bench(.unary)
    var ticket: UInt64 = 0
    bench.hooks[1].on[.status] = { hop in
      ticket = hop.takeTicket()
      return 1
    }
    openWhole(bench)
    headers(bench)
    fail(bench)
    #expect(!bench.take().contains("caller headers"))
    bench.perform(.resolve(ticket, .verdict(.restart)))
    #expect(bench.take().first == "2 destroy")
    #expect(bench.status == nil)
  }

  @Test func theyWaitWhileAMessageIsHeldOrDropped() {
    let bench = bench(.serverStream, headersWait: 1 << 2)
    var verdicts: [Int32] = [3, 2, 0]
    bench.hooks[1].on[.receive] = { _ in verdicts.removeFirst() }
    bench.perform(.open(demand: 1, message: CallBench.message(3)))
    headers(bench)
    bench.log = []
    message(bench)
    message(bench)
    #expect(bench.take() == ["2 on_receive", "1 on_receive", "pull", "2 on_receive", "1 on_receive", "pull"])
    message(bench)
    #expect(
      bench.take() == [
        "2 on_receive", "1 on_receive", "0 on_headers", "caller headers", "0 on_receive", "caller message 4",
      ])
  }

  @Test func streamsChoose() {
    for kind in [CallKind.serverStream, .bidi] {
      let bench = bench(kind)
      bench.perform(.open(demand: 1, message: CallBench.message(3)))
      bench.log = []
      headers(bench)
      #expect(bench.take() == ["2 on_headers", "1 on_headers", "0 on_headers", "caller headers"])
    }
    let none = bench(.unary, headersWait: 0)
    openWhole(none)
    headers(none)
    #expect(none.take() == ["2 on_headers", "1 on_headers", "0 on_headers", "caller headers"])
  }

  /// A caller that has not half-closed may wait for the headers before it sends.
  @Test func beforeTheHalfCloseTheyPass() {
    for kind in [CallKind.clientStream, .bidi] {
      let early = bench(kind, headersWait: 15)
      early.open(2)
      early.perform(.send(CallBench.message(1)))
      early.log = []
      headers(early)
      #expect(early.take() == ["2 on_headers", "1 on_headers", "0 on_headers", "caller headers"])
      let late = bench(kind, headersWait: 15)
      late.open(2)
      late.perform(.halfClose)
      late.log = []
      headers(late)
      #expect(late.take() == ["2 on_headers", "1 on_headers"])
      fail(late)
      #expect(late.status == nil)
    }
  }

  /// If the caller has not asked for a message, one is asked for behind the headers. It counts for the caller's
  /// next demand.
  @Test func whatComesBehindThemIsAskedForOnce() {
    let bench = bench(.serverStream, headersWait: 1 << 2)
    bench.perform(.open(demand: 0, message: CallBench.message(3)))
    bench.log = []
    headers(bench)
    #expect(bench.take() == ["2 on_headers", "1 on_headers", "pull"])
    #expect(bench.call.demandBelow == 1)
    fail(bench)
    #expect(bench.call.demandBelow == 1)
    bench.log = []
    message(bench)
    #expect(bench.take() == ["2 on_receive", "1 on_receive"])
    bench.perform(.demand(1))
    #expect(bench.take() == ["0 on_receive", "caller message 4"])
    #expect(bench.call.demandBelow == 0)
    bench.perform(.demand(1))
    #expect(bench.call.demandBelow == 1)
  }

  /// Headers and the message are held with tickets, and the message's ticket is resolved first: the verdict that
  /// the headers would wait for has come already.
  @Test func aVerdictThatCameBeforeCounts() {
    let bench = bench(.unary)
    var tickets: [UInt64] = []
    for kind in [EventKind.headers, .receive] {
      bench.hooks[1].on[kind] = { hop in
        tickets.append(hop.takeTicket())
        return 2
      }
    }
    openWhole(bench)
    headers(bench)
    message(bench)
    bench.log = []
    bench.perform(.resolve(tickets[1], .verdict(.next)))
    #expect(bench.take() == ["pull"])
    bench.perform(.resolve(tickets[0], .verdict(.next)))
    #expect(bench.take() == ["0 on_headers", "caller headers", "0 on_receive", "caller message 4", "pull"])
  }

  /// A pause of the headers ends, and they wait on; the lane is open again.
  @Test func headersThatWerePausedWaitToo() {
    let bench = bench(.unary)
    var ticket: UInt64 = 0
    bench.hooks[1].on[.headers] = { hop in
      ticket = hop.takeTicket()
      return 1
    }
    openWhole(bench)
    headers(bench)
    bench.perform(.resolve(ticket, .verdict(.next)))
    #expect(bench.take() == ["2 on_headers", "1 on_headers", "pull"])
    fail(bench)
    #expect(bench.status == nil)
  }

  @Test func aCancelDiscardsThem() {
    let bench = bench(.unary)
    openWhole(bench)
    headers(bench)
    bench.log = []
    bench.perform(.endLocally(Status(.cancelled)))
    #expect(!bench.take().contains("caller headers"))
    #expect(bench.status?.code == .cancelled)
  }

  /// A call that can't be sent again has no reason to keep its headers.
  @Test func tooLargeARequestKeepsNothing() {
    let bench = bench(.unary, replayBytes: 2)
    openWhole(bench)
    headers(bench)
    #expect(bench.take() == ["2 on_headers", "1 on_headers", "0 on_headers", "caller headers"])
  }

  /// Whoever asks what the call waits for learns that it is the server.
  @Test func theHolderIsTheServer() {
    let bench = bench(.unary)
    openWhole(bench)
    headers(bench)
    let standings = bench.call.standings
    #expect(standings.map { $0.state } == [.heldBack])
    guard case .server = bench.call.holder(standings) else {
      Issue.record("not the server")
      return
    }
  }
}
