/// A state with a table: its type is an enum, above which the table says what each event does in each state.
public protocol StateTable {
  associatedtype Event
  associatedtype Action

  /// The name of the invariant that an event comes only in a state in which the table allows it.
  static var invariant: StaticString { get }
  /// The answer to an event that can't happen, in builds without checks. The state stays.
  static var ignored: Action { get }

  /// Carries out the cell of the table; nil: the event can't happen.
  mutating func apply(_ event: Event) -> Action?
}

extension StateTable {
  @inlinable
  public mutating func handle(_ event: Event) -> Action {
    if let action = apply(event) { return action }
    #if PENSTOCK_CHECKS
      fatalError("invariant \(Self.invariant): \(event) in the state \(self)")
    #else
      return Self.ignored
    #endif
  }

  /// Goes into the state `next`. Returns `action`.
  @inlinable
  public mutating func become(_ next: Self, _ action: Action) -> Action {
    self = next
    return action
  }
}
