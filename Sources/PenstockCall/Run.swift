/// The run: the top hops that count together. As long as nothing makes one of them differ, they have the same
/// counts, which are kept once, here. An event goes through all of them as if they were one hop (`Call+Run`).
struct Run {
  /// The number of messages that the caller has asked for and that have not come up yet.
  var owed = 0
  /// How many messages have gone down and have not been reported as `sent`.
  var inFlight = 0

  // Used only while an event or a signal is on its way through the `Run`: the number of messages that the
  // signal is about, or the demand that goes down with start.
  var count = 0
  /// The address behind the last callback of the list that is being called. 0: a callback has made hops leave
  /// the `Run`, so the rest of the list has to be looked up again.
  var end: UInt = 0
  /// When the callback that runs began (`Call.callbackBegins`); 0: callbacks are not timed.
  var began: UInt64 = 0
  /// The event that goes through the `Run` now, and the index of the hop whose callback runs.
  var event = EventKind.none
  @Small var at = 0

  /// The `Life` of all hops of the `Run` once start has passed them: passing or halfClosed.
  var life = Life.passing
  /// The number of hops in the `Run`.
  @Small var length = 0
}
