import Testing

@testable import PenstockHTTP

/// Checks every cell of the table in HTTP2StreamLife.swift.
@Test func everyCellOfAStreamsLife() {
  let events: [HTTP2StreamLife.Event] = [
    .added, .submitted(withBody: false), .submitted(withBody: true), .submittedWhole, .headersSent,
    .bodyGiven,
    .allPacked, .lastPacked, .dataSent, .over,
  ]
  /// One row for each of `HTTP2StreamLife.allCases`, one column for each of `events`. A cell has the next
  /// state; nil: the state does not change.
  let table: [[HTTP2StreamLife?]] = [
    [.queued, nil, nil, nil, nil, nil, nil, nil, nil, .closed],
    [nil, .opening, .openingWithBody, .openingWhole, nil, nil, nil, nil, nil, .closed],
    [nil, nil, nil, nil, .idle, nil, nil, nil, nil, .closed],
    [nil, nil, nil, nil, .sending, nil, nil, nil, nil, .closed],
    [nil, nil, nil, nil, .ended, nil, nil, nil, nil, .closed],
    [nil, nil, nil, nil, nil, .sending, nil, nil, nil, .closed],
    [nil, nil, nil, nil, nil, nil, .emptying, .ending, nil, .closed],
    [nil, nil, nil, nil, nil, nil, nil, nil, .idle, .closed],
    [nil, nil, nil, nil, nil, nil, nil, nil, .ended, .closed],
    [nil, nil, nil, nil, nil, nil, nil, nil, nil, .closed],
    [nil, nil, nil, nil, nil, nil, nil, nil, nil, nil],
  ]
  #expect(table.count == HTTP2StreamLife.allCases.count)
  for (before, row) in zip(HTTP2StreamLife.allCases, table) {
    for (event, after) in zip(events, row) {
      var life = before
      life.handle(event)
      #expect(life == after ?? before, "\(before), \(event)")
    }
  }
}
