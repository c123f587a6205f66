import PenstockWire
import Testing

@testable import PenstockCall

@Suite struct MetadataTests {
  private func add(_ metadata: Metadata, _ name: String, _ value: String) -> Outcome {
    with(name) { name in with(value) { metadata.add(name, $0) } }
  }

  private func set(_ metadata: Metadata, _ name: String, _ value: String) -> Outcome {
    with(name) { name in with(value) { metadata.set(name, $0) } }
  }

  private func pairs(_ metadata: Metadata) -> [String] {
    (0..<metadata.count).map { "\(text(metadata.name(at: $0)))=\(text(metadata.value(at: $0)))" }
  }

  @Test func keepsOrderAndRepeatedNames() {
    let metadata = Metadata()
    #expect(add(metadata, "a", "1") == .ok)
    #expect(add(metadata, "b", "") == .ok)
    #expect(add(metadata, "a", "2") == .ok)
    #expect(pairs(metadata) == ["a=1", "b=", "a=2"])
    #expect(with("a") { metadata.index(of: $0, occurrence: 1) } == 2)
    #expect(with("a") { metadata.index(of: $0, occurrence: 2) } == nil)
    #expect(with("a") { metadata.index(of: $0, occurrence: -1) } == nil)
    #expect(with("c") { metadata.index(of: $0) } == nil)
  }

  @Test func setReplacesEveryValue() {
    let metadata = Metadata()
    for value in ["1", "2"] { _ = add(metadata, "a", value) }
    _ = add(metadata, "b", "x")
    #expect(set(metadata, "a", "3") == .ok)
    #expect(pairs(metadata) == ["b=x", "a=3"])
  }

  @Test func removeSaysWhatItFound() {
    let metadata = Metadata()
    _ = add(metadata, "a", "1")
    #expect(with("b") { metadata.remove($0) } == .notFound)
    #expect(with("a") { metadata.remove($0) } == .ok)
    #expect(metadata.count == 0)
    #expect(metadata.listSize == 0)
  }

  /// A name or value that is added may be a view of this very metadata, whose storage may move.
  @Test func takesViewsOfItself() {
    let metadata = Metadata()
    _ = add(metadata, "a", String(repeating: "v", count: 60))
    for _ in 0..<100 { #expect(metadata.add(metadata.name(at: 0), metadata.value(at: 0)) == .ok) }
    #expect(metadata.count == 101)
    #expect(metadata.set(metadata.name(at: 5), metadata.value(at: 7)) == .ok)
    #expect(pairs(metadata) == ["a=" + String(repeating: "v", count: 60)])
    #expect(metadata.remove(metadata.name(at: 0)) == .ok)
  }

  @Test func valuesAreBytes() {
    let metadata = Metadata()
    #expect(with("x-bin") { name in with([0, 255, 0]) { metadata.add(name, $0) } } == .ok)
    #expect(bytes(metadata.value(at: 0)) == [0, 255, 0])
    #expect(metadata.value(at: 1).isEmpty)
    #expect(metadata.name(at: -1).isEmpty)
  }

  /// RFC 9113 section 6.5.2: each field counts the bytes of its name and value, and 32 more.
  @Test func sizeIsThatOfAHeaderList() {
    let metadata = Metadata()
    _ = add(metadata, "abc", "12345")
    #expect(metadata.listSize == 40)
    _ = add(metadata, "d", "")
    #expect(metadata.listSize == 73)
    _ = with("abc") { metadata.remove($0) }
    #expect(metadata.listSize == 33)
  }

  @Test func replaceTakesEverythingOver() {
    let metadata = Metadata()
    let other = Metadata()
    _ = add(metadata, "old", "1")
    _ = add(other, "new", "2")
    metadata.replace(with: other)
    #expect(pairs(metadata) == ["new=2"])
    #expect(other.count == 0)
    _ = add(other, "again", "3")
    #expect(pairs(other) == ["again=3"])
    #expect(pairs(metadata) == ["new=2"])
  }

  /// The room of values that were replaced or removed is used again.
  @Test func removedValuesTakeNoRoom() {
    let metadata = Metadata()
    let value = String(repeating: "v", count: 1000)
    _ = add(metadata, "first", "1")
    for round in 0..<2000 {
      if round % 2 == 0 { _ = set(metadata, "a", value) } else { _ = with("a") { metadata.remove($0) } }
    }
    #expect(metadata.arenaCapacity <= 32768)
    #expect(pairs(metadata) == ["first=1"])
  }

  /// Random operations on metadata give the same results as on an array of pairs, even if they compact the
  /// storage.
  @Test func behavesAsAnArrayOfPairs() {
    var random = Random(Seed.value)
    for _ in 0..<60 {
      let metadata = Metadata()
      var expected: [(String, String)] = []
      for _ in 0..<120 {
        let name = "n\(random.below(5))"
        let value = String(repeating: "v", count: random.pick([0, 1, 300]))
        switch random.below(4) {
        case 0, 1:
          _ = add(metadata, name, value)
          expected.append((name, value))
        case 2:
          _ = set(metadata, name, value)
          expected.removeAll { $0.0 == name }
          expected.append((name, value))
        default:
          let there = expected.contains { $0.0 == name }
          #expect(with(name) { metadata.remove($0) } == (there ? .ok : .notFound))
          expected.removeAll { $0.0 == name }
        }
        #expect(metadata.listSize == expected.reduce(0) { $0 + $1.0.utf8.count + $1.1.utf8.count + 32 })
      }
      #expect(pairs(metadata) == expected.map { "\($0.0)=\($0.1)" })
      #expect(metadata.copy().map(pairs) == pairs(metadata))
    }
  }

  /// Both sides of an exchange can be used afterwards, whatever they had before.
  @Test func theContentsOfAnotherTakeThePlace() {
    for (own, others) in [(0, 0), (0, 3), (3, 0), (2, 50), (50, 2)] {
      let (metadata, other) = (Metadata(), Metadata())
      for index in 0..<own { #expect(add(metadata, "own\(index)", String(repeating: "o", count: 40)) == .ok) }
      for index in 0..<others { #expect(add(other, "n\(index)", "v\(index)") == .ok) }
      if own > 0 { #expect(with("own0") { metadata.remove($0) } == .ok) }
      metadata.replace(with: other)
      var expected = (0..<others).map { "n\($0)=v\($0)" }
      #expect(pairs(metadata) == expected && pairs(other) == [] && other.listSize == 0)
      let long = String(repeating: "l", count: 100)
      for index in 0..<20 {
        #expect(add(metadata, "more\(index)", long) == .ok && add(other, "x\(index)", "y") == .ok)
        expected.append("more\(index)=\(long)")
      }
      #expect(pairs(metadata) == expected && pairs(other) == (0..<20).map { "x\($0)=y" })
      other.replace(with: metadata)
      #expect(pairs(other) == expected && pairs(metadata) == [])
      #expect(add(metadata, "a", "b") == .ok && pairs(metadata) == ["a=b"])
    }
  }
}
