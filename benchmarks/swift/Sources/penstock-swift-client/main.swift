// Makes bench_client's measurements with the module Penstock; messages are arrays of bytes. It prints the same line of JSON.
//
//   penstock-swift-client --target HOST:PORT --what unary|pingpong|up|down|duplex [--calls N] [--in-flight N] [--bytes N]
//                         [--tls CA.pem]
//
// As many tasks as there are calls in flight each make one call after the other. Every reply is checked.
import BenchSupport
import Penstock

/// Gives one request so many times.
struct Repeated: AsyncSequence, AsyncIteratorProtocol, Sendable {
  let request: [UInt8]
  var left: Int

  func makeAsyncIterator() -> Repeated { self }

  mutating func next() async -> [UInt8]? {
    if left == 0 { return nil }
    left -= 1
    return request
  }
}

/// The measurements, made with one channel on one connection.
struct Bench: Sendable {
  let channel: Channel
  let options: Options
  let request: [UInt8]

  func run(_ calls: Int) async throws -> [Duration] {
    switch options.what {
    case "unary":
      let echo = Self.method("Unary")
      return try await unary(calls, options.inFlight) {
        guard isSame(try await channel.unary(echo, request), request) else { fail("wrong reply") }
      }
    case "pingpong": return try await pingPong(calls)
    case "up":
      let counted = try await channel.clientStream(
        Self.method("ClientStream"), requests(calls), options: CallOptions(metadata: ["x-mode": "count"]))
      guard counted == Array(String(calls).utf8) else { fail("wrong reply") }
    case "down":
      try await receive(
        calls,
        channel.serverStream(
          Self.method("ServerStream"), request, options: CallOptions(metadata: ["x-repeat": "\(calls)"])))
    case "duplex": try await receive(calls, channel.bidi(Self.method("Bidi"), requests(calls)))
    default: fail("--what: penstock-swift-client has no \(options.what)")
    }
    return []
  }

  private func pingPong(_ calls: Int) async throws -> [Duration] {
    let call = try channel.call(Self.method("Bidi"), .bidi)
    var responses = call.responses.makeAsyncIterator()
    let clock = ContinuousClock()
    var taken: [Duration] = []
    taken.reserveCapacity(calls)
    for _ in 0..<calls {
      let started = clock.now
      try await call.send(request)
      guard isSame(try await responses.next(), request) else { fail("wrong message") }
      taken.append(clock.now - started)
    }
    call.halfClose()
    guard try await responses.next() == nil else { fail("wrong count") }
    return taken
  }

  private func receive(_ calls: Int, _ responses: Responses<[UInt8]>) async throws {
    var received = 0
    for try await message in responses {
      guard isSame(message, request) else { fail("wrong message") }
      received += 1
    }
    guard received == calls else { fail("wrong count: \(received)") }
  }

  private func requests(_ calls: Int) -> Repeated { Repeated(request: request, left: calls) }

  private static func method(_ name: String) -> Method<[UInt8], [UInt8]> { Method("/penstock.Echo/\(name)") }
}

do {
  let options = Options(Array(CommandLine.arguments.dropFirst()))
  let channel = try Channel(options.address, options: options.channel)
  let bench = Bench(channel: channel, options: options, request: options.message)
  try await measure(options, bench.run)
} catch {
  fail("\(error)")
}
