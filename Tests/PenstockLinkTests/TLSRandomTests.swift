import PenstockWire
import PenstockTestSupport
import PenstockTestCertificates
import Testing

@testable import PenstockLink

/// A damaged record must give an error text, and must never trap.
@Suite struct TLSRandomTests {
  @Test(arguments: 0..<100)
  func damaged(_ seed: Int) throws {
    var random = SplitMix(state: UInt64(seed))
    func next(_ bound: Int) -> Int { random.next(below: bound) }
    let suite = TLSEngineTests()
    let pair = try suite.pair(Certificates.shared.client(), Certificates.shared.server())
    var client = pair.client.handshake()
    var server = TLSEngine.Progress.needsMore
    for _ in 0..<20 {
      damage(pair.client.output, pair.server.input)
      if server != .failed { server = pair.server.handshake() }
      damage(pair.server.output, pair.client.input)
      if client != .failed { client = pair.client.handshake() }
    }
    if client == .failed { #expect(pair.client.failure?.isEmpty == false) }
    if server == .failed { #expect(pair.server.failure?.isEmpty == false) }

    func damage(_ from: ByteBuffer, _ to: ByteBuffer) {
      var bytes = [UInt8](from.view)
      from.consume(bytes.count)
      if !bytes.isEmpty, next(3) == 0 { bytes[next(bytes.count)] ^= UInt8(1 << next(8)) }
      if !bytes.isEmpty, next(8) == 0 { bytes.removeLast(next(bytes.count)) }
      _ = bytes.withUnsafeBytes { to.append($0) }
    }
  }
}
