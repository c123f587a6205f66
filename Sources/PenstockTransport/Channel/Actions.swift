/// The actions of a decision, in order: at most two, stored without an array.
struct Actions<Action: Equatable>: Equatable {
  private var first: Action?
  private var second: Action?

  init(_ first: Action? = nil, _ second: Action? = nil) {
    self.first = first
    self.second = second
  }

  static var none: Actions { Actions() }

  mutating func next() -> Action? {
    let action = first
    first = second
    second = nil
    return action
  }
}
