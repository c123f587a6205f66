/// The actions that follow from one event, in order: at most two, stored without an array. The type is
/// `@inlinable` because it is generic: the compiler specialises it for each type of action in the module that
/// uses it.
public struct Actions<Action: Equatable>: Equatable {
  @usableFromInline var first: Action?
  @usableFromInline var second: Action?

  @inlinable
  public init(_ first: Action? = nil, _ second: Action? = nil) {
    self.first = first
    self.second = second
  }

  @inlinable
  public static var none: Actions { Actions() }

  @inlinable
  public mutating func next() -> Action? {
    let action = first
    first = second
    second = nil
    return action
  }
}
