/// The inputs of a call, and the decisions that some of them bring.
extension Call {
  /// The inputs of a call. Carrying out one input is a step.
  public enum Input {
    /// Begins the call: sends start with this demand; if there is a message, then it and the half-close.
    case open(demand: Int, message: Message?)
    case send(Message)
    case halfClose
    case demand(Int)
    /// Ends the call from outside its hops: for example, the caller has cancelled, the deadline has passed,
    /// or the channel was closed.
    case endLocally(Status)
    case headersFromBelow(Metadata)
    case messageFromBelow(Message)
    case statusFromBelow(Status)
    case sentFromBelow(Int)
    /// Tells `sent` to the hops from an index (the first number) upward, for a number of messages (the second
    /// number): for example, messages that a hop has dropped or holds.
    case sentFrom(Int, Int)
    case resolve(UInt64, Resolution)
    /// Resolves the ticket with the verdict NEXT at this time.
    case resume(UInt64, at: UInt64)
    /// An event of the answer that a hop gives instead of the server, after TAKE or before it.
    case answer(Hop, Event)
    /// A hop injects an event outside of its callbacks.
    case put(Hop, Event)
    /// A hop ends the call outside of its callbacks, or by this ticket; 0: by no ticket.
    case finish(Hop, Status, ticket: UInt64 = 0)
    case demandBelow(Hop, Int)
    case flush(Int, Lane)
    /// Sends the events that the `Cut` has recorded down again, beginning with the hop at this index.
    case replay(Cut, Int)
    case ran(Job)
    case executorLost(Hop)
    /// A thread waits for a message of a half-duplex call that has not half-closed.
    case awaited

    /// Whether the call accepts this input before `open` has run: only `open` itself and an end.
    var mayBegin: Bool {
      switch self {
      case .open, .endLocally: true
      case .send, .halfClose, .demand, .headersFromBelow, .messageFromBelow, .statusFromBelow, .sentFromBelow,
        .sentFrom, .resolve, .resume, .answer, .put, .finish, .demandBelow, .flush, .replay,
        .ran, .executorLost, .awaited:
        false
      }
    }
  }

  /// The decision about an event that waits with a ticket or has just been shown to its callback.
  public enum Resolution {
    case verdict(Verdict)
    case finish(Status)
    /// The interceptor broke law 7 (docs/laws.md) in this way.
    case broken(StaticString)
  }
}
