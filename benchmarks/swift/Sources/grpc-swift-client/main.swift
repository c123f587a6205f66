// Makes bench_client's measurements with grpc-swift-2; messages are arrays of bytes. It prints the same line of JSON.
//
//   grpc-swift-client --target HOST:PORT --what unary|pingpong|up|down|duplex [--calls N] [--in-flight N] [--bytes N]
//                     [--tls CA.pem] [--transport nio|penstock] [--window N, with NIO]
//
// As many tasks as there are calls in flight each make one call after the other. Every reply is checked.
import BenchSupport
import GRPCCore
import GRPCNIOTransportHTTP2Posix
import PenstockGRPC

func nio(_ options: Options) throws -> HTTP2ClientTransport.Posix {
  var config = HTTP2ClientTransport.Posix.Config.defaults
  if let window = options.window { config.http2.targetWindowSize = window }
  // If each call waits for an answer, flushes must not be coalesced: the transport would wait 100 us for more to send. Its
  // documentation advises this.
  if options.what == "pingpong" || (options.what == "unary" && options.inFlight == 1) {
    config.connection.flushCoalescing = nil
  }
  var security = HTTP2ClientTransport.Posix.TransportSecurity.plaintext
  if let roots = options.roots {
    config.http2.authority = "localhost"
    security = .tls { $0.trustRoots = .certificates([.file(path: roots, format: .pem)]) }
  }
  return try .http2NIOPosix(
    target: .ipv4(address: options.target.host, port: options.target.port), transportSecurity: security,
    config: config)
}

func penstock(_ options: Options) throws -> PenstockClientTransport {
  try .penstock(options.address, options: options.channel)
}

func measured(_ options: Options, _ transport: some ClientTransport) async throws {
  try await withGRPCClient(transport: transport) { client in
    let bench = Bench(client: client, options: options)
    try await measure(options, bench.run)
  }
}

do {
  let options = Options(Array(CommandLine.arguments.dropFirst()))
  switch options.transport ?? "nio" {
  case "nio": try await measured(options, nio(options))
  case "penstock": try await measured(options, penstock(options))
  default: fail("--transport: nio or penstock")
  }
} catch {
  fail("\(error)" + ((error as? GRPCCore.RPCError)?.cause.map { ": \($0)" } ?? ""))
}
