import Glibc

/// Makes the calls or messages of a measurement with `run`, which gives the duration of each if they go one after the other, and
/// otherwise an empty array. Prints the line of JSON that bench_client prints. A tenth of the calls is made before the
/// measurement, on the same connection.
public func measure(_ options: Options, _ run: (_ calls: Int) async throws -> [Duration]) async throws {
  _ = try await run(options.calls / 10 + 1)
  let before = usage()
  let clock = ContinuousClock()
  let started = clock.now
  let taken = try await run(options.calls).sorted()
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

/// Makes `calls` unary calls: one after the other, or by as many tasks as there are calls in flight.
public func unary(
  _ calls: Int, _ inFlight: Int, _ call: @escaping @Sendable () async throws -> Void
) async throws -> [Duration] {
  if inFlight == 1 {
    let clock = ContinuousClock()
    var taken: [Duration] = []
    taken.reserveCapacity(calls)
    for _ in 0..<calls { taken.append(try await clock.measure { try await call() }) }
    return taken
  }
  try await withThrowingDiscardingTaskGroup { group in
    for number in 0..<inFlight {
      let share = calls / inFlight + (number < calls % inFlight ? 1 : 0)
      group.addTask { for _ in 0..<share { try await call() } }
    }
  }
  return []
}

/// Whether two messages are the same. It takes less time than `==`, which compares one byte after the other.
public func isSame(_ message: [UInt8]?, _ other: [UInt8]) -> Bool {
  guard let message, message.count == other.count else { return false }
  return memcmp(message, other, other.count) == 0
}

private func usage() -> rusage {
  var usage = rusage()
  getrusage(Int32(RUSAGE_SELF.rawValue), &usage)
  return usage
}

private func seconds(_ from: timeval, _ to: timeval) -> Double {
  Double(to.tv_sec - from.tv_sec) + Double(to.tv_usec - from.tv_usec) / 1e6
}

private func microseconds(_ taken: [Duration], _ part: Double) -> Double {
  taken.isEmpty ? 0 : taken[Int(Double(taken.count - 1) * part)] / .microseconds(1)
}
