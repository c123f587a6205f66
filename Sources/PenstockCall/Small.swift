/// An index or a count that is never large, kept in half the bytes.
@propertyWrapper
struct Small {
  private var number: Int32

  init(wrappedValue: Int) { number = Int32(truncatingIfNeeded: wrappedValue) }

  var wrappedValue: Int {
    get { Int(number) }
    set { number = Int32(truncatingIfNeeded: newValue) }
  }
}
