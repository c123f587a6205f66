import PenstockNames
import PenstockTestSupport
import PenstockWire
import Testing

@testable import PenstockChannel

@Suite struct EndpointTests {
  func list(_ places: [(String, UInt16?)]) throws -> [Endpoint] {
    try places.map { place, priority in
      let host = bytes(place)
      return Endpoint(try #require(SocketAddress(literal: host.view, port: 1)), priority: priority)
    }
  }

  func texts(_ list: [Endpoint]) -> [String] {
    list.map { String(String(decoding: $0.address.text(), as: UTF8.self).dropLast(2)) }
  }

  /// IPv4 and IPv6 alternate within each priority, and no address comes twice.
  @Test func inOrder() throws {
    let all = try list([
      ("1.1.1.1", 1), ("1.1.1.2", 1), ("::1", 1), ("1.1.1.1", 1), ("::2", 2), ("1.1.1.1", 2), ("1.1.1.3", 2),
      ("::3", 2),
    ])
    #expect(
      texts(Endpoint.interleaved(all)) == ["1.1.1.1", "[::1]", "1.1.1.2", "[::2]", "1.1.1.3", "[::3]"])
    #expect(texts(Endpoint.interleaved(all, onlyFirstPriority: true)) == ["1.1.1.1", "[::1]", "1.1.1.2"])
    let plain = try list([("::1", nil), ("::1", nil), ("::2", nil), ("1.1.1.1", nil)])
    for only in [false, true] {
      #expect(texts(Endpoint.interleaved(plain, onlyFirstPriority: only)) == ["[::1]", "1.1.1.1", "[::2]"])
    }
    #expect(Endpoint.interleaved([], onlyFirstPriority: true).isEmpty)
  }
}
