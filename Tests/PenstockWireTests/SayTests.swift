import Glibc
import Testing

@testable import PenstockWire

/// The texts for people, and the comparisons of bytes, with each limit.
@Suite struct SayTests {
  @Test(
    arguments: [
      (0, "0"), (1, "1"), (9, "9"), (10, "10"), (99, "99"), (100, "100"), (1_234_567_890, "1234567890"),
      (-1, "-1"),
      (-10, "-10"), (Int.max, "9223372036854775807"), (Int.min, "-9223372036854775808"),
    ] as [(Int, String)])
  func numbers(_ number: Int, _ expected: String) { #expect(text(ByteBuffer().say(number)) == expected) }

  @Test func unsignedNumbers() {
    #expect(text(ByteBuffer().say(unsigned: .max)) == "18446744073709551615")
    #expect(text(ByteBuffer().say(unsigned: 10_000_000_000_000_000_000)) == "10000000000000000000")
    #expect(text(ByteBuffer().say(unsigned: 0)) == "0")
  }

  @Test func otherTexts() {
    let said = ByteBuffer().say("a").say(Array("b".utf8)).say(cString: nil).say("c")
    #expect(text(said) == "abc")
    #expect("d".withCString { text(ByteBuffer().say(cString: $0)) } == "d")
    #expect(text(ByteBuffer().say(errno: ENOENT)) == "No such file or directory")
  }

  private static let printables: [(String, Int, String)] = [
    ("", 3, ""), ("abc", 3, "abc"), ("abcd", 3, "abc..."), ("a\u{1f}\u{7f}~ \u{0}", 9, "a..~ ."),
    ("\u{e9}!", 9, "..!"),
    ("a", 0, "..."), ("", 0, ""),
  ]

  @Test(arguments: printables)
  func printable(_ bytes: String, _ limit: Int, _ expected: String) {
    #expect(with(bytes) { text(ByteBuffer().say(printable: $0, limit: limit)) } == expected)
  }

  @Test func onlyLettersBecomeLowercase() {
    for byte in UInt8.min...UInt8.max {
      let isUpper = (0x41...0x5A).contains(byte)
      #expect(lowercase(byte) == (isUpper ? byte + 0x20 : byte))
    }
  }

  private static let compared: [(String, String, Bool, Bool)] = [
    ("abc", "abc", true, true), ("ABC", "abc", true, true), ("aBcD", "abc", false, true),
    ("ab", "abc", false, false),
    ("abd", "abc", false, false), ("xbc", "abc", false, false), ("", "", true, true), ("a", "", false, true),
    ("@", "`", false, false), ("[", "{", false, false), ("A-Z", "a-z", true, true),
  ]

  @Test(arguments: compared)
  func comparisonsIgnoreCase(_ one: String, _ lower: String, _ isEqual: Bool, _ isPrefix: Bool) {
    #expect(with(one) { one in with(lower) { hasPrefixIgnoringCase(one, $0) } } == isPrefix)
    func equal(_ other: StaticString) -> Bool { with(one) { equalIgnoringCase($0, other) } }
    if lower == "abc" { #expect(equal("abc") == isEqual) }
    if lower == "a-z" { #expect(equal("a-z") == isEqual) }
    if lower.isEmpty { #expect(equal("") == isEqual) }
  }

  @Test func positionsOfBytes() {
    #expect(with("abca") { position(of: 0x61, in: $0) } == 0)
    #expect(with("abca") { position(of: 0x63, in: $0) } == 2)
    #expect(with("abca") { position(of: 0x64, in: $0) } == nil)
    #expect(position(of: 0, in: ByteView(start: nil, count: 0)) == nil)
  }

  private static let sliced: [(Int, Int, String)] = [
    (0, 3, "abc"), (1, 2, "b"), (1, 1, ""), (-5, 2, "ab"), (2, 9, "c"), (2, 1, ""), (3, 3, ""), (9, 9, ""),
    (0, 0, ""),
  ]

  @Test(arguments: sliced)
  func slices(_ from: Int, _ to: Int, _ expected: String) {
    #expect(with("abc") { bytes(slice($0, from: from, to: to)) } == bytes(expected))
  }

  @Test(arguments: [
    ("a--b", "a"), ("--b", ""), ("a--", "a"), ("a-b", "a-b"), ("a-", "a-"), ("", ""), ("a---b", "a"),
    ("--", ""), ("-", "-"),
  ])
  func cutsBeforeWords(_ whole: String, _ expected: String) {
    #expect(with(whole) { bytes(cut($0, before: "--")) } == bytes(expected))
  }
}

/// The storage of a buffer: when it grows, when the contents move, and when bytes are not copied.
@Suite struct ByteBufferStorageTests {
  private func filled(_ count: Int) -> ByteBuffer {
    let buffer = ByteBuffer()
    #expect(with([UInt8](repeating: 1, count: count)) { buffer.append($0) })
    return buffer
  }

  /// Sizes are powers of two, and at least 64, as long as the buffer only grows.
  @Test(arguments: [(1, 64), (64, 64), (65, 65), (100, 100)])
  func firstSize(_ count: Int, _ reach: Int) { #expect(filled(count).reach == reach) }

  private static let grown: [(Int, Int, Int)] = [
    (64, 1, 128), (64, 64, 128), (64, 65, 256), (64, 192, 256), (65, 63, 128), (65, 64, 256),
  ]

  @Test(arguments: grown)
  func growsInPowersOfTwo(_ count: Int, _ more: Int, _ reach: Int) {
    let buffer = filled(count)
    #expect(buffer.reserve(more) && buffer.reach == reach && buffer.count == count)
  }

  @Test func roomThatIsThereIsUsed() {
    let buffer = filled(1)
    let place = buffer.view.baseAddress
    #expect(buffer.reserve(63) && buffer.reach == 64 && buffer.view.baseAddress == place)
    #expect(buffer.reserve(64) && buffer.reach == 128)
    #expect(!buffer.reserve(-1) && !buffer.reserve(Int.min))
  }

  private static let moved: [(Int, Int, Int)] = [
    (17, 1, 64), (32, 16, 64), (40, 24, 64), (16, 1, 98), (17, 2, 98), (32, 33, 128), (1, 1, 128),
  ]

  /// The contents move to the front if at least a quarter of the storage, here 16 bytes, is free
  /// afterwards. Otherwise the storage becomes twice as large as needed.
  @Test(arguments: moved)
  func movesOrGrows(_ consumed: Int, _ more: Int, _ reach: Int) {
    let buffer = filled(64)
    buffer.consume(consumed)
    #expect(buffer.reach == 64 - consumed)
    #expect(buffer.reserve(more) && buffer.reach == reach)
    #expect(bytes(buffer.view) == [UInt8](repeating: 1, count: 64 - consumed))
  }

  @Test func exactStorage() throws {
    let buffer = filled(70)
    #expect(buffer.reserveExactly(total: 200) && buffer.reach == 200 && buffer.count == 70)
    #expect(buffer.reserveExactly(total: 200) && buffer.reach == 200)
    buffer.consume(10)
    #expect(buffer.reserveExactly(total: 190) && buffer.reach == 190)
    #expect(buffer.reserveExactly(total: 191) && buffer.reach == 191 && buffer.count == 60)
    #expect(!ByteBuffer().reserveExactly(total: Int.max))
    #expect(try #require(ByteBuffer(capacity: 0)).isEmpty)
    #expect(try #require(ByteBuffer(capacity: 7)).reach == 7)
  }

  /// Bytes that stand in the free room already are taken over, others are copied.
  @Test func acceptsBytesInItsFreeRoom() throws {
    let buffer = filled(3)
    let spare = try #require(buffer.spare(atLeast: 61))
    #expect(spare.count == 61)
    for index in 0..<61 { spare[index] = 2 }
    let place = buffer.view.baseAddress
    #expect(buffer.accept(ByteView(rebasing: ByteView(spare)[..<60])))
    #expect(bytes(buffer.view) == [1, 1, 1] + [UInt8](repeating: 2, count: 60))
    let last = try #require(buffer.spare(atLeast: 1))
    #expect(last.count == 1)
    #expect(buffer.accept(ByteView(last)) && buffer.count == 64 && buffer.reach == 64)
    #expect(buffer.view.baseAddress == place)
    #expect(with("abc") { buffer.accept($0) } && bytes(buffer.view).suffix(3) == Array("abc".utf8)[...])
    #expect(with("x") { ByteBuffer().accept($0) } && ByteBuffer().accept(ByteView(start: nil, count: 0)))
  }

  @Test func commitsNoMoreThanItHas() throws {
    let buffer = filled(60)
    _ = try #require(buffer.spare(atLeast: 4))
    buffer.commit(4)
    #expect(buffer.count == 64)
    buffer.commit(1)
    #expect(buffer.count == 64)
  }

  @Test func truncates() {
    let buffer = filled(4)
    buffer.truncate(to: 4)
    #expect(buffer.count == 4)
    buffer.consume(1)
    buffer.truncate(to: 3)
    #expect(buffer.count == 3)
    buffer.truncate(to: 2)
    #expect(buffer.count == 2)
    buffer.truncate(to: -1)
    #expect(buffer.isEmpty)
  }

  /// Consuming all bytes gives the whole storage back to use.
  @Test func consumingAllBytesBeginsAtTheFront() {
    let buffer = filled(64)
    buffer.consume(63)
    #expect(buffer.reach == 1)
    buffer.consume(1)
    #expect(buffer.reach == 64 && buffer.isEmpty)
    buffer.consume(0)
    let other = filled(64)
    other.consume(10)
    other.removeAll(keepingCapacity: true)
    #expect(other.reach == 64)
    other.removeAll(keepingCapacity: false)
    #expect(other.reach == 0)
  }

  /// Storage that is handed over has the bytes at its front.
  @Test func takesAllOrNothing() {
    let buffer = filled(64)
    buffer.consume(64)
    let (nothing, none) = buffer.take()
    #expect(nothing == nil && none == 0 && buffer.reach == 0)
    let other = filled(5)
    other.consume(2)
    let (memory, count) = other.take()
    #expect(memory != nil && count == 3 && other.isEmpty && other.reach == 0)
    free(memory)
  }
}
