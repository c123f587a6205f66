import PenstockWire
import Testing

@Suite struct NameTableTests {
  /// Each name has its value, and no other name has one, through each growth of the table.
  @Test func namesHaveValues() {
    let table = NameTable()
    let names = [""] + (0..<1000).map { String(repeating: "n", count: $0 % 7) + "\($0)" }
    for (number, name) in names.enumerated() {
      #expect(with(name) { table.value(of: $0) } == nil)
      #expect(with(name) { table.add($0, UInt32(number)) } == .added)
      #expect(with(name) { table.add($0, 7) } == .already)
      #expect(with(name) { table.value(of: $0) } == UInt32(number))
    }
    #expect(table.count == names.count)
    for (number, name) in names.enumerated() {
      #expect(with(name) { table.value(of: $0) } == UInt32(number))
    }
    #expect(with("n") { table.value(of: $0) } == nil)
  }

  private func with<Result>(_ name: String, _ body: (ByteView) -> Result) -> Result {
    Array(name.utf8).withUnsafeBytes { body($0) }
  }
}
