/// An interceptor as closures: each gets a value and a `proceed`, which it calls with what goes on, at once or later, on
/// any thread. Until then the value waits, and later ones of its direction behind it. A closure that is nil lets its
/// values pass.
///
/// `proceed` with an ``RPCError`` ends the call with it; another error, or dropping `proceed` without a call, ends it with
/// INTERNAL and a message that names the interceptor. The first call of a `proceed` counts.
public struct InterceptorFunctions: Sendable {
  /// Gets a value and what lets it go on.
  public typealias Function<Value: Sendable> = @Sendable (Value, Proceed<Value>) -> Void

  /// The start of the call.
  public var start: Function<CallStart>?
  /// A message to the server.
  public var request: Function<InterceptedMessage>?
  /// The response headers.
  public var headers: Function<Metadata>?
  /// A message from the server.
  public var response: Function<InterceptedMessage>?
  /// The status of the call.
  public var status: Function<Status>?

  /// Makes an interceptor of closures.
  public init(
    start: Function<CallStart>? = nil, request: Function<InterceptedMessage>? = nil,
    headers: Function<Metadata>? = nil, response: Function<InterceptedMessage>? = nil,
    status: Function<Status>? = nil
  ) {
    self.start = start
    self.request = request
    self.headers = headers
    self.response = response
    self.status = status
  }
}

/// Lets a value go on; called once.
public final class Proceed<Value: Sendable>: Sendable {
  /// Nobody has called a `proceed` that is gone.
  struct Dropped: Error, CustomStringConvertible {
    var description: String { "it dropped a value without proceeding" }
  }

  private let continuation: Locked<CheckedContinuation<Value, any Error>?>

  init(_ continuation: CheckedContinuation<Value, any Error>) {
    self.continuation = Locked(continuation)
  }

  deinit { callAsFunction(.failure(Dropped())) }

  /// Lets a value, or an error in its place, go on.
  public func callAsFunction(_ result: Result<Value, any Error>) {
    let waiting = continuation.withLock { continuation in
      defer { continuation = nil }
      return continuation
    }
    waiting?.resume(with: result)
  }

  /// Lets a value go on.
  public func callAsFunction(_ value: Value) { callAsFunction(.success(value)) }
}

extension Interception {
  /// Closures of their own for each call. The factory runs on the runtime's thread and must not wait; nil: this call is
  /// not intercepted.
  public static func functions(
    _ make: @escaping @Sendable (InterceptedCallInfo) -> InterceptorFunctions?
  ) -> Interception {
    perCall { info in make(info).map(FunctionsInterceptor.init) }
  }
}

private struct FunctionsInterceptor: Interceptor {
  let functions: InterceptorFunctions

  private func run<Value: Sendable>(
    _ function: InterceptorFunctions.Function<Value>?, _ value: inout Value
  ) async throws {
    guard let function else { return }
    let now = value
    value = try await withCheckedThrowingContinuation { function(now, Proceed($0)) }
  }

  func onStart(_ start: inout CallStart) async throws { try await run(functions.start, &start) }
  func onRequest(_ message: inout InterceptedMessage) async throws {
    try await run(functions.request, &message)
  }
  func onHeaders(_ headers: inout Metadata) async throws { try await run(functions.headers, &headers) }
  func onResponse(_ message: inout InterceptedMessage) async throws {
    try await run(functions.response, &message)
  }
  func onStatus(_ status: inout Status) async throws { try await run(functions.status, &status) }
}
