import PenstockTestSupport
import PenstockWire
import Testing

@testable import PenstockReady

/// The map of the response cache, and what it drops.
@Suite struct LeastRecentlyUsedTests {
  private func insert(_ map: inout LeastRecentlyUsed<Int>, _ key: String, _ value: Int, bytes size: Int)
    -> [Int]
  {
    var gone: [Int] = []
    map.insert(bytes(key), value, bytes: size, gone: &gone)
    return gone
  }

  private func find(_ map: inout LeastRecentlyUsed<Int>, _ key: String) -> Int? {
    let key = bytes(key)
    return withExtendedLifetime(key) { map.find(key.view) }
  }

  @Test func theOldestGivesWay() {
    var map = LeastRecentlyUsed<Int>(maxEntries: 10, maxBytes: 100, seed: 7)
    #expect(insert(&map, "a", 1, bytes: 40) == [])
    #expect(insert(&map, "b", 2, bytes: 60) == [])
    #expect(map.bytes == 100)
    // "a" is used, so "b" is the oldest.
    #expect(find(&map, "a") == 1)
    #expect(insert(&map, "c", 3, bytes: 1) == [2])
    #expect(find(&map, "b") == nil && find(&map, "c") == 3 && map.bytes == 41)
    // A value of the same key takes the place of the first.
    #expect(insert(&map, "c", 4, bytes: 2) == [3])
    #expect(find(&map, "c") == 4 && map.bytes == 42)
  }

  @Test func aValueMayTakeAllTheRoomAndNoMore() {
    var map = LeastRecentlyUsed<Int>(maxEntries: 10, maxBytes: 100, seed: 7)
    #expect(insert(&map, "a", 1, bytes: 40) == [])
    #expect(insert(&map, "b", 2, bytes: 101) == [])
    #expect(find(&map, "a") == 1 && find(&map, "b") == nil)
    #expect(insert(&map, "b", 2, bytes: 100) == [1])
    #expect(find(&map, "a") == nil && find(&map, "b") == 2 && map.bytes == 100)
  }

  @Test func thereAreOnlySoManyEntries() {
    var map = LeastRecentlyUsed<Int>(maxEntries: 2, maxBytes: 100, seed: 7)
    #expect(insert(&map, "a", 1, bytes: 1) == [] && insert(&map, "b", 2, bytes: 1) == [])
    #expect(insert(&map, "c", 3, bytes: 1) == [1])
    var none = LeastRecentlyUsed<Int>(maxEntries: 0, maxBytes: 100, seed: 7)
    #expect(insert(&none, "a", 1, bytes: 1) == [] && find(&none, "a") == nil)
  }
}
