import CPenstockSystem
import Glibc
import Testing

@Suite struct RoundTripTests {
  /// The kernel knows the round-trip time of a TCP connection. For a unix socket it is 0.
  @Test func theKernelKnowsTheRoundTrip() throws {
    let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    defer { close(listener) }
    let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    defer { close(descriptor) }
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    var size = socklen_t(MemoryLayout<sockaddr_in>.size)
    let isConnected = withUnsafeMutablePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(listener, $0, size) == 0 && listen(listener, 1) == 0 && getsockname(listener, $0, &size) == 0
          && connect(descriptor, $0, size) == 0
      }
    }
    try #require(isConnected)
    let found = cs_round_trip(descriptor)
    #expect(found > 0 && found < 10_000_000)
    var pair: [Int32] = [0, 0]
    try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &pair) == 0)
    defer { pair.forEach { cs_close($0) } }
    #expect(cs_round_trip(pair[0]) == 0)
  }
}
