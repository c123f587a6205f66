import Glibc
public import Penstock

/// The command line: pairs of a name and a value.
public struct Options: Sendable {
  public private(set) var target = (host: "", port: 0)
  public private(set) var what = "unary"
  public private(set) var calls = 1000
  public private(set) var inFlight = 1
  public private(set) var bytes = 64
  public private(set) var roots: String?
  public private(set) var window: Int?
  /// The value of --transport, for a client that has several.
  public private(set) var transport: String?

  public init(_ arguments: [String]) {
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
      case "--transport": transport = value
      case "--threads":
        if Self.number(name, value) != 1 { fail("--threads: the clients in Swift have no blocking calls") }
      default: fail("not an option: \(name)")
      }
    }
  }

  private static func number(_ name: String, _ value: String, atLeast least: Int = 1) -> Int {
    guard let number = Int(value), number >= least else { fail("\(name): \(value)") }
    return number
  }

  /// The target of a channel, with its options.
  public var address: String { "\(target.host):\(target.port)" }
  public var channel: ChannelOptions {
    guard let roots else { return .cleartext }
    var certificates = TLSOptions.Certificates()
    certificates.rootsFile = roots
    return ChannelOptions(tls: .on(certificates))
  }

  /// The message that each request has, and each reply to it.
  public var message: [UInt8] { (0..<bytes).map { UInt8(truncatingIfNeeded: $0 * 131) } }
}

/// Ends the program at once, because of a wrong option or a wrong reply. Open calls are not waited for.
public func fail(_ why: String) -> Never {
  let program = CommandLine.arguments[0].split(separator: "/").last ?? ""
  let line = "\(program): \(why)\n"
  write(STDERR_FILENO, line, line.utf8.count)
  exit(1)
}
