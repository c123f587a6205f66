/// The hops from the top that nothing has set apart yet. The counts of each equal those of its neighbours, so they count
/// once, here, and an event goes through all of them as if they were one hop (`Call+Run`).
struct Run {
  /// Demand from the caller that no message has answered yet.
  var owed = 0
  /// How many messages have gone down and have not been told as `sent`.
  var inFlight = 0

  // Used while an event or a signal is on its way through the run: the number of messages that the signal is about,
  // or the demand that goes with start.
  var count = 0
  /// The address behind the last callback to which the event is shown. 0: hops were set apart meanwhile, so the rest
  /// of the list has to be looked up again.
  var end: UInt = 0
  /// The event that is on its way, and the index of the hop whose callback runs.
  var event = EventKind.none
  @Small var at = 0

  /// The life of the hops once start has passed them: passing or halfClosed.
  var life = Life.passing
  /// How many hops the run has.
  @Small var length = 0
}
