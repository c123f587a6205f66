/// A property wrapper for an index or a count that always fits in 32 bits: it takes half the memory of an
/// `Int`.
@propertyWrapper
public struct Small {
  private var number: Int32

  public init(wrappedValue: Int) { number = Int32(truncatingIfNeeded: wrappedValue) }

  public var wrappedValue: Int {
    get { Int(number) }
    set { number = Int32(truncatingIfNeeded: newValue) }
  }
}
