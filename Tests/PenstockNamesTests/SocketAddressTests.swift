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
    #expect(SocketAddress(&storage, length: 129) == nil)
    #expect(SocketAddress(&storage, length: 128)?.port == 0)
  }
}
