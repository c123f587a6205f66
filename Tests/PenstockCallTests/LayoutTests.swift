import PenstockWire
import Testing

@testable import PenstockCall

/// The layouts on which `unsafeBitCast` in this module relies (docs/architecture.md, "What depends on the toolchain").
@Suite struct LayoutTests {
  /// The object in an event, if it has one.
  private func object(_ event: Event) -> AnyObject? {
    switch event {
    case .start, .halfClose: nil
    case .send(let message), .receive(let message): message
    case .headers(let headers): headers
    case .status(let status): status
    }
  }

  @Test func anEventIsAsLargeAsAnAddress() {
    #expect(MemoryLayout<Event>.size == MemoryLayout<UInt>.size)
  }

  @Test func aCallShowsEachEventAsItIs() {
    let (message, headers, status) = (buffer("m"), Metadata(), Status(.ok))
    let events: [Event] = [
      .start, .send(message), .halfClose, .headers(headers), .receive(message), .status(status),
    ]
    let bench = CallBench()
    for event in events {
      bench.call.show(event)
      let shown = bench.call.event
      #expect(shown.kind == event.kind)
      #expect(object(shown) === object(event))
    }
  }

  @Test func anOptionalObjectIsItsAddress() {
    let message = buffer("m")
    var lent: Message? = message
    #expect(MemoryLayout<Message?>.size == MemoryLayout<UnsafeMutableRawPointer?>.size)
    let isLent = borrow(lent) { $0 === message }
    #expect(isLent == true)
    lent = nil
    let isStillLent = borrow(lent) { $0 === message }
    #expect(isStillLent == nil)
  }

  @Test func callbacksOfAllTypesAreAddresses() {
    let size = MemoryLayout<UInt>.size
    #expect(MemoryLayout<HopCallback?>.size == size)
    #expect(MemoryLayout<HopCreate?>.size == size && MemoryLayout<HopDestroy?>.size == size)
    #expect(MemoryLayout<ConnectionCallback?>.size == size)
  }
}
