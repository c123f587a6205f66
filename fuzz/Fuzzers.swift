import CPenstockSystem
import PenstockWire

/// All fuzzers are in one program, so that one build is enough. The name under which the program is started picks the
/// fuzzer. libFuzzer has the main function; scripts/fuzz builds and runs the program.
///
/// A fuzzer takes any bytes. It fails if the code traps (a `precondition` checks each condition that must hold), if the
/// address sanitizer reports an error or a leak, or if an input takes too much time or memory.
private enum Fuzzer: String, CaseIterable {
  case wire, options, gzip, client, tls, dns, http1, framings
  case connectJSON = "connect-json"

  func run(_ input: ByteView) {
    switch self {
    case .wire: fuzzWire(input)
    case .options: fuzzOptions(input)
    case .gzip: fuzzCompressors(input)
    case .client: fuzzClient(input)
    case .tls: fuzzTLS(input)
    case .dns: fuzzDNS(input)
    case .http1: fuzzHTTP1(input)
    case .framings: fuzzFramings(input)
    case .connectJSON: fuzzConnectJSON(input)
    }
  }
}

nonisolated(unsafe) private var chosen = Fuzzer.wire

@_cdecl("LLVMFuzzerInitialize")
public func initialize(
  _ count: UnsafePointer<CInt>, _ arguments: UnsafePointer<UnsafePointer<UnsafePointer<CChar>>>
) -> CInt {
  let path = String(cString: arguments.pointee[0])
  let name = path.split(separator: "/").last.map { String($0) } ?? path
  guard let fuzzer = Fuzzer(rawValue: name) else {
    for fuzzer in Fuzzer.allCases { print(fuzzer.rawValue) }
    exit(0)
  }
  chosen = fuzzer
  return 0
}

@_cdecl("LLVMFuzzerTestOneInput")
public func test(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
  chosen.run(ByteView(start: start, count: count))
  return 0
}
