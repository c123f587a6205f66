import Glibc
import PenstockWire
import Testing

@Suite struct ByteBufferTests {
  @Test func emptyBufferHasNoBytes() {
    let buffer = ByteBuffer()
    #expect(buffer.count == 0)
    #expect(buffer.isEmpty)
    #expect(buffer.view.isEmpty)
    buffer.consume(5)
    buffer.truncate(to: -1)
    let (pointer, count) = buffer.take()
    #expect(pointer == nil && count == 0)
  }

  @Test func appendsConsumesAndTruncates() throws {
    let buffer = try #require(ByteBuffer(capacity: 2))
    #expect(buffer.append("hello"))
    #expect(buffer.append(byte: 0x21))
    #expect(text(buffer) == "hello!")
    buffer.consume(2)
    #expect(text(buffer) == "llo!")
    buffer.consume(-3)
    buffer.truncate(to: 99)
    #expect(text(buffer) == "llo!")
    buffer.truncate(to: 3)
    #expect(text(buffer) == "llo")
    buffer.consume(99)
    #expect(buffer.isEmpty)
    #expect(buffer.append("x"))
    #expect(text(buffer) == "x")
  }

  @Test func copiesAndHandsOverItsStorage() throws {
    let buffer = try #require(with("0123456789") { ByteBuffer(copying: $0) })
    buffer.consume(4)
    let (pointer, count) = buffer.take()
    let owned = try #require(pointer)
    #expect(bytes(ByteView(start: owned, count: count)) == bytes("456789"))
    free(owned)
    #expect(buffer.isEmpty)
    #expect(buffer.append("again"))
    #expect(text(buffer) == "again")
  }

  @Test func spareBecomesReadableByCommit() throws {
    let buffer = ByteBuffer()
    let spare = try #require(buffer.spare(atLeast: 3))
    #expect(spare.count >= 3)
    spare[0] = 0x61
    spare[1] = 0x62
    #expect(buffer.isEmpty)
    buffer.commit(2)
    buffer.commit(-1)
    #expect(text(buffer) == "ab")
    buffer.commit(Int.max)
    #expect(buffer.count <= spare.count)
    #expect(ByteBuffer().spare(atLeast: 0)?.count == 0)
    #expect(ByteBuffer().spare(atLeast: -7)?.count == 0)
  }

  @Test func appendsAPartOfItself() throws {
    let buffer = try #require(ByteBuffer(capacity: 4))
    #expect(buffer.append("abcd"))
    for _ in 0..<6 { #expect(buffer.append(buffer.view)) }
    #expect(text(buffer) == String(repeating: "abcd", count: 64))
    buffer.consume(200)
    #expect(buffer.append(ByteView(rebasing: buffer.view[1..<56])))
    #expect(text(buffer).hasPrefix("abcd"))
    #expect(buffer.count == 111)
  }

  @Test func removeAllKeepsOrFrees() {
    let buffer = ByteBuffer()
    #expect(buffer.append("abc"))
    buffer.removeAll(keepingCapacity: true)
    #expect(buffer.isEmpty)
    #expect(buffer.append("d"))
    buffer.removeAll(keepingCapacity: false)
    #expect(buffer.isEmpty)
    #expect(buffer.append("e"))
    #expect(text(buffer) == "e")
  }

  /// The object that owns lent bytes is released when the buffer does not use the bytes any more: at its
  /// first change, after an exchange, or when the buffer is released.
  @Test func keepsWhatKeepsItsBytes() throws {
    func lent(_ keeper: AnyObject) -> ByteBuffer {
      ByteBuffer(lent: ("lent" as StaticString).bytes, by: keeper)
    }
    var keeper: ByteBuffer? = ByteBuffer()
    weak let kept = keeper
    var one = lent(try #require(keeper))
    let two = lent(try #require(keeper))
    let three = lent(try #require(keeper))
    keeper = nil
    #expect(one.isLent && one.lend().view.baseAddress == one.view.baseAddress)
    let fresh = try #require(with("fresh") { ByteBuffer(copying: $0) })
    one.exchange(with: fresh)
    #expect(text(one) == "fresh" && !one.isLent && text(fresh) == "lent" && fresh.isLent)
    fresh.removeAll(keepingCapacity: false)
    #expect(two.append("!") && text(two) == "lent!" && !two.isLent)
    three.consume(2)
    #expect(kept != nil && text(three.lend()) == "nt")
    three.removeAll(keepingCapacity: true)
    #expect(three.append("mine") && text(three) == "mine")
    #expect(kept == nil)
    // An empty buffer lends no bytes, so the other buffer does not keep it.
    one = ByteBuffer()
    weak let empty = one
    let none = one.lend()
    one = two
    #expect(empty == nil && none.isEmpty)
  }

  /// `staysPlain` stays true when a buffer gets other contents, and a buffer that gets its contents has it
  /// too.
  @Test func staysPlain() throws {
    let secret = try #require(with("secret") { ByteBuffer(copying: $0) })
    secret.staysPlain = true
    let lent = secret.lend()
    #expect(lent.staysPlain && !ByteBuffer().lend().staysPlain)
    lent.exchange(with: ByteBuffer())
    #expect(lent.staysPlain && lent.isEmpty)
    let other = ByteBuffer()
    other.exchange(with: secret.lend())
    #expect(other.staysPlain && text(other) == "secret")
  }

  /// A failed allocation is reported and never traps. (With sanitizers this needs
  /// `allocator_may_return_null=1`.)
  @Test func absurdSizesAreReported() {
    #expect(ByteBuffer(capacity: -1) == nil)
    #expect(ByteBuffer(capacity: Int.max) == nil)
    let buffer = ByteBuffer()
    #expect(buffer.append("kept"))
    #expect(!buffer.reserve(Int.max))
    #expect(!buffer.reserve(Int.max - 4))
    #expect(!buffer.reserve(-1))
    #expect(buffer.spare(atLeast: Int.max) == nil)
    #expect(text(buffer) == "kept")
  }

  /// Random operations give the same contents as on an array. Half of the buffers begin with lent bytes,
  /// which must never be written.
  @Test func randomOperationsAgreeWithAnArray() {
    var random = Random()
    for round in 0..<200 {
      let other = ByteBuffer()
      let original = round % 2 == 0 ? [] : random.bytes(upTo: 300)
      #expect(with(original) { other.append($0) })
      let buffer = round % 2 == 0 ? ByteBuffer() : other.lend()
      var model = original
      defer { #expect(bytes(other.view) == original, "PENSTOCK_SEED=\(Seed.value)") }
      for _ in 0..<100 {
        switch random.below(7) {
        case 0, 1:
          let more = random.bytes(upTo: 100)
          #expect(with(more) { buffer.append($0) })
          model += more
        case 2:
          let n = random.below(120)
          buffer.consume(n)
          model.removeFirst(min(n, model.count))
        case 3:
          let n = random.below(200)
          buffer.truncate(to: n)
          model = Array(model.prefix(n))
        case 4:
          #expect(buffer.append(byte: 7))
          model.append(7)
        case 5:
          #expect(buffer.reserve(random.below(500)))
        default:
          if model.count < 2_000 {
            #expect(buffer.append(buffer.view))
            model += model
          }
        }
        #expect(bytes(buffer.view) == model, "PENSTOCK_SEED=\(Seed.value)")
      }
    }
  }
}

@Suite struct BytesTests {
  @Test func equality() {
    let none = ByteView(start: nil, count: 0)
    #expect(bytesEqual(none, none))
    #expect(bytesEqual(none, ""))
    #expect(with("abc") { bytesEqual($0, "abc") })
    #expect(!with("abc") { bytesEqual($0, "abd") })
    #expect(!with("abc") { bytesEqual($0, "ab") })
  }

  @Test func literalBytes() {
    #expect(bytes(("a" as StaticString).bytes) == [0x61])
    #expect(bytes(("\u{FFFD}" as StaticString).bytes) == [0xEF, 0xBF, 0xBD])
    #expect(("" as StaticString).bytes.isEmpty)
  }
}
