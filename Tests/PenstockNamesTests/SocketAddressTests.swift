import CPenstockSystem
import PenstockTestSupport
import Testing

@testable import PenstockNames

@Suite struct SocketAddressTests {
  @Test func textOfUnixAddresses() {
    func text(_ path: String) -> String? {
      var path = path
      return path.withUTF8 { SocketAddress(unixPath: UnsafeRawBufferPointer($0)) }
        .map { String(decoding: $0.text(), as: UTF8.self) }
    }
    #expect(text("/run/x.sock") == "unix:/run/x.sock")
    #expect(text("\0name") == "unix-abstract:name")
    #expect(text("") == nil)
    #expect(text("/a\0b") == nil)
    #expect(text(String(repeating: "x", count: 107)) != nil)
    #expect(text(String(repeating: "x", count: 108)) == nil)
    #expect(text("\0" + String(repeating: "x", count: 107)) != nil)
    #expect(text("\0" + String(repeating: "x", count: 108)) == nil)
  }

  @Test func vsockAddresses() {
    let address = SocketAddress(vsock: 3, port: 70000)
    #expect(String(decoding: address.text(), as: UTF8.self) == "vsock:3:70000")
    #expect(address.family == AF_VSOCK && address.port == 0 && !address.isUnix)
    #expect(address == SocketAddress(vsock: 3, port: 70000))
    #expect(
      address != SocketAddress(vsock: 3, port: 70001) && address != SocketAddress(vsock: 4, port: 70000))
  }

  @Test func socketAddressesOfTheSystemAreChecked() {
    var storage = sockaddr_storage()
    #expect(SocketAddress(&storage, length: 0) == nil)
    #expect(SocketAddress(&storage, length: 1) == nil)
    #expect(SocketAddress(&storage, length: 2)?.length == 2)
    #expect(SocketAddress(&storage, length: 129) == nil)
    #expect(SocketAddress(&storage, length: 128)?.port == 0)
  }

  private static let addresses: [(String, UInt16, String)] = [
    ("1.2.3.4", UInt16(1), "1.2.3.4:1"), ("0.0.0.0", 0, "0.0.0.0:0"),
    ("255.255.255.255", 65535, "255.255.255.255:65535"),
    ("::1", 10, "[::1]:10"), ("2001:db8::", 9, "[2001:db8::]:9"), ("fe80::1%12", 443, "[fe80::1%12]:443"),
    ("::ffff:1.2.3.4", 100, "[::ffff:1.2.3.4]:100"),
  ]

  @Test(arguments: addresses)
  func textOfIPAddresses(_ literal: String, _ port: UInt16, _ expected: String) throws {
    let name = bytes(literal)
    let address = try #require(withExtendedLifetime(name) { SocketAddress(literal: name.view, port: port) })
    #expect(String(decoding: address.text(), as: UTF8.self) == expected)
    #expect(address.port == port && !address.isUnix)
    #expect(address.isIPv6 == literal.contains(":") && address.isIPv4 == !literal.contains(":"))
    let same = withExtendedLifetime(name) { SocketAddress(literal: name.view, port: port) }
    #expect(address == same)
    #expect(withExtendedLifetime(name) { address != SocketAddress(literal: name.view, port: port ^ 1) })
  }

  @Test(arguments: [
    "", "a", "1.2.3", "1.2.3.4.5", "1.2.3.256", "[::1]", "::1::", "1.2.3.4:5", "::1%", "fe80::1%x\u{1}",
  ])
  func textsThatAreNoIPAddress(_ literal: String) {
    let name = bytes(literal)
    withExtendedLifetime(name) { #expect(SocketAddress(literal: name.view, port: 1) == nil) }
  }

  /// A text for a system call has no NUL inside, and one behind it; a text of just the limit still fits.
  @Test func textsThatEndWithNUL() {
    func length(_ text: [UInt8], _ limit: Int) -> Int? {
      text.withUnsafeBytes { withTerminated($0, limit: limit) { Int(strlen($0)) } }
    }
    #expect(length([], 0) == 0)
    #expect(length([0x61, 0x62, 0x63], 3) == 3)
    #expect(length([0x61, 0x62, 0x63], 2) == nil)
    #expect(length([0x61, 0, 0x63], 3) == nil)
  }

  @Test func addressesOfOtherKindsAndLengthsDiffer() throws {
    func unix(_ path: String) -> SocketAddress? {
      var path = path
      return path.withUTF8 { SocketAddress(unixPath: UnsafeRawBufferPointer($0)) }
    }
    #expect(try #require(unix("/a")).isUnix && unix("/a") == unix("/a"))
    #expect(unix("/a") != unix("/ab") && unix("/a") != unix("/b") && unix("\0a") != unix("/a"))
  }
}
