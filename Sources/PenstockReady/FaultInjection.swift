import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockClient
import PenstockLoop
import PenstockTickets

/// Fault injection: delays calls before they are sent, or ends them with an error, or both.
public final class FaultInjection: ReadyInterceptor {
  public struct Options {
    /// The delay in nanoseconds.
    public var delay: UInt64 = 0
    public var delayChance = Chance(percent: 0)
    public var abort: Status?
    public var abortChance = Chance(percent: 0)
    public var seed: UInt64?

    public init() {}
  }

  private let options: Options
  private let dice: Dice

  public init(_ options: Options) {
    self.options = options
    dice = Dice(seed: options.seed)
    var callbacks = Registration.Callbacks()
    callbacks.onStart = { handle, state in
      let (hop, this) = behind(handle, state, FaultInjection.self)
      return this.start(hop)
    }
    super.init("fault_injection", callbacks)
  }

  private func start(_ hop: Hop) -> Int32 {
    // Both random decisions are made for each call, so that the same seed gives the same faults, whatever the
    // calls do.
    let delayed = dice.happens(options.delayChance)
    let abort = dice.happens(options.abortChance) ? options.abort?.copy() : nil
    if delayed, options.delay > 0 {
      let ticket = hop.takeTicket()
      let end: Call.Resolution = abort.map { .finish($0) } ?? .verdict(.next)
      if ticket != 0, Tickets.resolveAfter(ticket, end, nanoseconds: options.delay) == .ok { return pause }
    }
    if let abort { _ = hop.finish(abort) }
    return next
  }
}
