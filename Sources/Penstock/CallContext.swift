internal import CPenstock

/// The deadline and the cancellation that a server call, or any other work, hands on to the calls made for it.
///
/// The context of a task is ``current``, which the tasks that it starts have, too. A call takes over what its options
/// name (``CallOptions/inherited``):
///
///     try await CallContext(timeout: .seconds(2)).run {
///       try await channel.unary(method, request, options: options)  // options.inherited = .all
///     }
///
/// The functions that wait for a call cancel it when their own task is cancelled; that needs no context. A context also
/// reaches the calls of unstructured tasks, which Swift does not cancel with the task that started them.
public final class CallContext: Sendable {
  /// The parts of a context that a call may take over.
  public struct Parts: OptionSet, Sendable, Hashable {
    /// The bits of the parts.
    public let rawValue: UInt8
    /// Makes parts of their bits.
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// The deadline: the call ends with DEADLINE_EXCEEDED at the latest then.
    public static let deadline = Parts(rawValue: 1)
    /// The cancellation: it ends the call with CANCELLED.
    public static let cancellation = Parts(rawValue: 2)
    /// Both.
    public static let all: Parts = [.deadline, .cancellation]
  }

  /// The context of this task; nil: it runs in none.
  @TaskLocal public static var current: CallContext?

  private struct State {
    /// The calls that are cancelled with the context, once one has asked for that.
    var scope: Handle?
    /// The reason, once the context has been cancelled.
    var reason: String?
    /// The contexts inside this one.
    var inner: [ObjectIdentifier: Inner] = [:]
  }

  /// A context inside of another one, which does not keep it.
  private struct Inner: Sendable {
    weak let context: CallContext?
  }

  /// When the calls of the context end at the latest; nil: it sets no deadline.
  public let deadline: ContinuousClock.Instant?
  private let outer: CallContext?
  private let state = Locked(State())

  /// Makes a context. Inside of another one it has the earlier deadline of both, and is cancelled with the other one.
  ///
  /// - Parameters:
  ///   - deadline: when its calls end at the latest; nil: it sets none.
  ///   - outer: the context that this one is inside of; nil: none.
  public init(deadline: ContinuousClock.Instant?, within outer: CallContext? = .current) {
    let times = [deadline, outer?.deadline].compactMap { $0 }
    self.deadline = times.min()
    self.outer = outer
    if let reason = outer?.add(self) { cancel(reason) }
  }

  /// Makes a context whose deadline is a time from now; nil: it sets none.
  public convenience init(timeout: Duration? = nil, within outer: CallContext? = .current) {
    self.init(deadline: timeout.map { ContinuousClock.now + $0 }, within: outer)
  }

  deinit { outer?.remove(ObjectIdentifier(self)) }

  /// The time until the deadline, which may have passed; nil: there is none.
  public var timeout: Duration? { deadline.map { ContinuousClock.now.duration(to: $0) } }

  /// Whether the context has been cancelled.
  public var isCancelled: Bool { state.withLock { $0.reason != nil } }

  /// Cancels the calls that have taken over the cancellation, those that will be made, too, and the contexts inside this
  /// one. The first reason stays.
  public func cancel(_ reason: String = "the surrounding call was cancelled") {
    let (scope, inner) = state.withLock { state -> (Handle?, [Inner]) in
      guard state.reason == nil else { return (nil, []) }
      state.reason = reason
      return (state.scope, Array(state.inner.values))
    }
    if let scope { penstock_cancel_scope_cancel(scope.pointer, reason) }
    for context in inner { context.context?.cancel(reason) }
  }

  /// Runs `body` in this context. If the task is cancelled meanwhile, so is the context.
  public func run<Value>(
    isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> Value
  ) async rethrows -> Value {
    try await withTaskCancellationHandler {
      try await Self.$current.withValue(self, operation: body)
    } onCancel: {
      cancel()
    }
  }

  /// The calls that are cancelled with the context.
  func scope() throws(PenstockError) -> Handle {
    if let scope = state.withLock({ $0.scope }) { return scope }
    let made = try make("a scope", penstock_cancel_scope_release) { scope, _ in
      penstock_cancel_scope_new(&scope)
    }
    let (scope, reason) = state.withLock { state in
      let scope = state.scope ?? made
      state.scope = scope
      return (scope, state.reason)
    }
    if let reason { penstock_cancel_scope_cancel(scope.pointer, reason) }
    return scope
  }

  /// Adds a context inside this one. Gives the reason if this one has been cancelled.
  private func add(_ context: CallContext) -> String? {
    state.withLock { state in
      state.inner[ObjectIdentifier(context)] = Inner(context: context)
      return state.reason
    }
  }

  private func remove(_ context: ObjectIdentifier) {
    state.withLock { _ = $0.inner.removeValue(forKey: context) }
  }
}
