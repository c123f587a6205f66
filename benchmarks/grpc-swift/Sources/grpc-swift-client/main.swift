// Makes bench_client's measurements with grpc-swift-2 on its NIO transport; messages are arrays of bytes. It prints the same
// line of JSON.
//
//   grpc-swift-client --target HOST:PORT --what unary|pingpong|up|down|duplex [--calls N] [--in-flight N] [--bytes N]
//                     [--tls CA.pem] [--window N]
//
// As many tasks as there are calls in flight each make one call after the other. Every reply is checked. A tenth of the
// calls is made before the measurement, on the same connection.
import GRPCCore
import GRPCNIOTransportHTTP2Posix
import Glibc

func transport(_ options: Options) throws -> HTTP2ClientTransport.Posix {
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

func usage() -> rusage {
  var usage = rusage()
  getrusage(Int32(RUSAGE_SELF.rawValue), &usage)
  return usage
}

func seconds(_ from: timeval, _ to: timeval) -> Double {
  Double(to.tv_sec - from.tv_sec) + Double(to.tv_usec - from.tv_usec) / 1e6
}

func microseconds(_ taken: [Duration], _ part: Double) -> Double {
  taken.isEmpty ? 0 : taken[Int(Double(taken.count - 1) * part)] / .microseconds(1)
}

do {
  let options = Options(Array(CommandLine.arguments.dropFirst()))
  try await withGRPCClient(transport: transport(options)) { client in
    let bench = Bench(client: client, options: options)
    _ = try await bench.run(options.calls / 10 + 1)
    let before = usage()
    let clock = ContinuousClock()
    let started = clock.now
    let taken = try await bench.run(options.calls).sorted()
    let took = (clock.now - started) / .seconds(1)
    let after = usage()
    print(
      """
      {"calls": \(options.calls), "seconds": \(took), "user": \(seconds(before.ru_utime, after.ru_utime)), \
      "system": \(seconds(before.ru_stime, after.ru_stime)), "switches": \(after.ru_nvcsw - before.ru_nvcsw), \
      "max_rss_kb": \(after.ru_maxrss), "p50_us": \(microseconds(taken, 0.5)), \
      "p99_us": \(microseconds(taken, 0.99)), "slowest": 1}
      """)
  }
} catch {
  fail("\(error)" + ((error as? RPCError)?.cause.map { ": \($0)" } ?? ""))
}
