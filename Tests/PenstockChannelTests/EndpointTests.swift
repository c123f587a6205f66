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

  func address(_ literal: String, _ port: UInt16) throws -> SocketAddress {
    let literal = bytes(literal)
    return try #require(withExtendedLifetime(literal) { SocketAddress(literal: literal.view, port: port) })
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

  /// Attributes stand in pairs; only a name is compared, never a value.
  @Test func attributes() throws {
    let address = try self.address("1.1.1.1", 1)
    let endpoint = Endpoint(address, attributes: ["zone", "a", "rack", "zone", "a", "b"].map { bytes($0) })
    func value(_ name: String) -> String? {
      let name = bytes(name)
      return withExtendedLifetime(name) { text(endpoint.attribute(name.view)) }
    }
    #expect(value("zone") == "a" && value("rack") == "zone" && value("a") == "b")
    #expect(value("b") == nil && value("") == nil && value("zon") == nil)
  }

  /// The text has a NUL behind it, and is made once.
  @Test func textIsMadeOnce() throws {
    let address = try self.address("1.1.1.1", 1)
    let endpoint = Endpoint(address)
    #expect(text(endpoint.text) == "1.1.1.1:1\0" && endpoint.text === endpoint.text)
    #expect(endpoint.weight == 1 && endpoint.priority == nil && endpoint.way == .straight)
  }

  /// A proxy changes the address to connect to, and with it whose connections these are.
  @Test func waysThroughProxies() throws {
    let address = try self.address("1.1.1.1", 1)
    let proxy = try self.address("2.2.2.2", 2)
    let plain = Endpoint(address, weight: 3, priority: 4, attributes: [bytes("zone"), bytes("a")])
    let far = plain.through(proxy)
    #expect(far.way == .through(proxy) && far.address == address && far.weight == 3 && far.priority == 4)
    let zone = bytes("zone")
    #expect(withExtendedLifetime(zone) { text(far.attribute(zone.view)) } == "a")
    #expect(plain.nearest == address && far.nearest == proxy)
    let named = Endpoint(address, .named)
    #expect(named.nearest == address)
    #expect(plain.isSame(as: Endpoint(address)) && far.isSame(as: plain.through(proxy)))
    #expect(!plain.isSame(as: far) && !plain.isSame(as: named) && !far.isSame(as: plain.through(address)))
    #expect(!plain.isSame(as: Endpoint(proxy)))
  }
}
