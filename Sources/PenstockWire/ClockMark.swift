/// Says that time has passed unseen: whoever runs code that may take long sets `isStale`, and the loop then reads its clock
/// anew before it uses the time. So neither has to know the other. Driving thread only.
open class ClockMark {
  public final var isStale = false
  public init() {}
}
