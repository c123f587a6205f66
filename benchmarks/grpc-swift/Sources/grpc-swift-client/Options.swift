import Glibc

/// The command line: pairs of a name and a value.
struct Options: Sendable {
  var target = (host: "", port: 0)
  var what = "unary"
  var calls = 1000
  var inFlight = 1
  var bytes = 64
  var roots: String?
  var window: Int?

  init(_ arguments: [String]) {
    var rest = arguments[...]
    while let name = rest.popFirst() {
      guard let value = rest.popFirst() else { fail("no value for \(name)") }
      switch name {
      case "--target":
        guard let colon = value.lastIndex(of: ":"), let port = Int(value[value.index(after: colon)...]) else {
          fail("--target: not HOST:PORT")
        }
        target = (String(value[..<colon]), port)
      case "--what": what = value
      case "--calls": calls = Self.number(name, value)
      case "--in-flight": inFlight = Self.number(name, value)
      case "--bytes": bytes = Self.number(name, value, atLeast: 0)
      case "--tls": roots = value
      case "--window": window = Self.number(name, value)
      case "--threads":
        if Self.number(name, value) != 1 { fail("--threads: grpc-swift-2 has no blocking calls") }
      default: fail("not an option: \(name)")
      }
    }
  }

  private static func number(_ name: String, _ value: String, atLeast least: Int = 1) -> Int {
    guard let number = Int(value), number >= least else { fail("\(name): \(value)") }
    return number
  }
}

/// Ends the program at once, because of a wrong option or a wrong reply. Open calls are not waited for.
func fail(_ why: String) -> Never {
  let line = "grpc-swift-client: \(why)\n"
  write(STDERR_FILENO, line, line.utf8.count)
  exit(1)
}
