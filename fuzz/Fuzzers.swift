import CSystem
import PenstockWire

/// All fuzzers in one program, so that one build serves them: the name that it is called by picks one. libFuzzer has the
/// main function; scripts/fuzz builds and runs it.
///
/// A fuzzer takes any bytes. It fails by a trap (`precondition` for what has to hold), by the address sanitizer, by a
/// leak, by its time or by its memory.
private enum Fuzzer: String, CaseIterable {
  case wire, options, gzip, client, tls

  func run(_ input: ByteView) {
    switch self {
    case .wire: fuzzWire(input)
    case .options: fuzzOptions(input)
    case .gzip: fuzzGzip(input)
    case .client: fuzzClient(input)
    case .tls: fuzzTLS(input)
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
