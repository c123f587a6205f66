internal import CPenstock

/// An interceptor to be registered: in one of three styles, or a ready-made one.
public struct Interception: Sendable {
  /// Gives the table for a registration of that name, which takes it over. What it needs from the tasks that make calls
  /// it adds to the captures of the channel or the runtime.
  let table: Table
  typealias Table =
    @Sendable (_ name: String, CaptureList, inout OpaquePointer?) -> (
      penstock_result, penstock_interceptor
    )

  init(_ table: @escaping Table) { self.table = table }

  /// An interceptor of the asynchronous style, the style of the C API for languages with promises.
  private init(asynchronous: @escaping @Sendable (_ name: String) -> penstock_async_interceptor) {
    table = { name, _, error in
      var own = asynchronous(name)
      own.struct_size = MemoryLayout<penstock_async_interceptor>.size
      var table = penstock_interceptor()
      table.struct_size = MemoryLayout<penstock_interceptor>.size
      return (penstock_async_interceptor_table(&own, &table, &error), table)
    }
  }

  /// A ready-made interceptor. All registrations of one value share its state.
  init(_ ready: ReadyTable) { table = { _, _, _ in ready.shared() } }

  /// An instance of its own for each call. The factory runs on the runtime's thread and must not wait.
  ///
  /// - Parameters:
  ///   - events: the events that the instances want to see; others pass without cost.
  ///   - make: makes the instance of a call; nil: this call is not intercepted.
  public static func perCall(
    events: InterceptedEvents = .all,
    _ make: @escaping @Sendable (InterceptedCallInfo) -> (any Interceptor)?
  ) -> Interception {
    Interception(asynchronous: { HopTasks.table($0, events, make) })
  }

  /// One instance for all calls.
  public static func shared(
    events: InterceptedEvents = .all, _ interceptor: any Interceptor
  ) -> Interception {
    perCall(events: events) { _ in interceptor }
  }

  /// A function that runs around each call: what stands before ``InterceptedCall/next()`` happens on the way out, what
  /// stands behind it on the way back. A function that throws ends the call, as with ``Interceptor``; one that returns
  /// without `next` lets the call go on.
  ///
  /// - Parameters:
  ///   - replayBytes: how many bytes of request messages are kept so that `next` can be called again.
  ///   - maxRestarts: how often `next` may be called again in one call.
  public static func around(
    replayBytes: Int = 65_536, maxRestarts: Int = 100,
    _ body: @escaping @Sendable (InterceptedCall) async throws -> Void
  ) -> Interception {
    Interception(asynchronous: { name in
      var table = InterceptedCall.table(name, body)
      table.replay_bytes = max(0, replayBytes)
      table.max_restarts = max(1, maxRestarts)
      return table
    })
  }
}

/// The level of an interceptor.
public enum InterceptorLevel: UInt32, Sendable {
  /// Below the codec of the library: nearest to the server.
  case bytes = 0
  /// Above it: nearest to the caller.
  case object = 1
}

/// Which calls meet an interceptor, and where.
struct InterceptorPlace: Sendable {
  var name: String
  var methods: [String]
  var kinds: Set<CallKind>
  var level: InterceptorLevel

  /// Calls `body` with the table of an interception.
  func with(
    _ interception: Interception, _ captures: CaptureList,
    _ body: (UnsafePointer<penstock_interceptor>, inout OpaquePointer?) -> penstock_result
  ) throws(PenstockError) {
    let patterns = methods.joined(separator: ",")
    var error: OpaquePointer?
    var (result, table) = interception.table(name, captures, &error)
    if result == PENSTOCK_OK {
      // A ready-made interceptor may be for some kinds only.
      if !kinds.isEmpty { table.kinds = kinds.reduce(0) { $0 | 1 << UInt32($1.rawValue) } }
      table.level = level.rawValue
      name.withCString { name in
        patterns.withCString { patterns in
          table.name = name
          table.methods = methods.isEmpty ? nil : patterns
          result = body(&table, &error)
        }
      }
    }
    try attempt("the interceptor \(name)") { thrown in
      thrown = error
      return result
    }
  }
}

/// An interceptor that has been added to a channel or a runtime. It stays there until it is removed; this value may go.
///
/// A change holds for calls that are made after it.
public final class Registration: Sendable {
  private struct State {
    var id: penstock_interceptor_id
    var priority: Int32
  }
  private let state: Locked<State>
  private let captures: CaptureList

  /// Registers an interception by `add`, a function of the C API.
  init(
    _ interception: Interception, at place: InterceptorPlace, _ priority: Int32, _ captures: CaptureList,
    _ add: (UnsafePointer<penstock_interceptor>, inout penstock_interceptor_id, inout OpaquePointer?) ->
      penstock_result
  ) throws(PenstockError) {
    var id: penstock_interceptor_id = 0
    try place.with(interception, captures) { table, error in add(table, &id, &error) }
    self.captures = captures
    state = Locked(State(id: id, priority: priority))
  }

  /// The priority: of two interceptors the one with the higher priority sees a request first, and its response last.
  public var priority: Int32 { state.withLock { $0.priority } }

  /// Moves the interceptor to another priority.
  ///
  /// - Throws: ``PenstockError``: `notFound`: it has been removed.
  public func setPriority(_ priority: Int32) throws(PenstockError) {
    let id = state.withLock { $0.id }
    try attempt("moving an interceptor") { penstock_registration_set_priority(id, priority, &$0) }
    state.withLock { $0.priority = priority }
  }

  /// Chooses which calls meet the interceptor: `methods` are whole methods or beginnings with a star, such as
  /// "/package.Service/*". Empty: all.
  public func setFilter(methods: [String] = [], kinds: Set<CallKind> = []) throws(PenstockError) {
    let id = state.withLock { $0.id }
    let mask = kinds.reduce(UInt32(0)) { $0 | 1 << UInt32($1.rawValue) }
    let patterns = methods.joined(separator: ",")
    try attempt("choosing the calls of an interceptor") { error in
      penstock_registration_set_filter(id, methods.isEmpty ? nil : patterns, mask, &error)
    }
  }

  /// Replaces the interceptor by another one, in the same place: each call meets either the old or the new one.
  public func replace(
    _ name: String, _ interception: Interception, methods: [String] = [], kinds: Set<CallKind> = [],
    level: InterceptorLevel = .bytes
  ) throws(PenstockError) {
    let old = state.withLock { $0.id }
    var new: penstock_interceptor_id = 0
    let place = InterceptorPlace(name: name, methods: methods, kinds: kinds, level: level)
    try place.with(interception, captures) { table, error in
      penstock_registration_replace(old, table, &new, &error)
    }
    state.withLock { $0.id = new }
  }

  /// Removes the interceptor; calls that run keep it.
  ///
  /// - Throws: ``PenstockError``: `notFound`: it has been removed before.
  public func remove() throws(PenstockError) {
    let id = state.withLock { $0.id }
    try attempt("removing an interceptor") { penstock_registration_remove(id, &$0) }
  }

  /// Waits until no call has the interceptor any more, after it was removed or its channel has gone.
  ///
  /// - Parameter limit: how long; nil: without limit.
  /// - Throws: ``PenstockError``: `timeout`: a call has not ended; `state`: it is still registered.
  public func waitRemoved(within limit: Duration? = nil) async throws {
    let id = state.withLock { $0.id }
    try await waiting("waiting for the end of an interceptor", limit) {
      penstock_registration_wait_removed(id, $0)
    }
  }
}

extension Channel {
  /// Adds an interceptor for calls that are made from now on.
  ///
  /// - Parameters:
  ///   - name: its name in error messages and lists.
  ///   - interception: what it does.
  ///   - priority: of two interceptors the one with the higher priority sees a request first, and its response last.
  ///   - methods: whole methods, or beginnings with a star such as "/package.Service/*"; empty: all.
  ///   - kinds: the kinds of calls; empty: all.
  ///   - level: see ``InterceptorLevel``.
  @discardableResult
  public func addInterceptor(
    _ name: String, _ interception: Interception, priority: Int32 = 0, methods: [String] = [],
    kinds: Set<CallKind> = [], level: InterceptorLevel = .bytes
  ) throws(PenstockError) -> Registration {
    let place = InterceptorPlace(name: name, methods: methods, kinds: kinds, level: level)
    return try Registration(interception, at: place, priority, captures) { table, id, error in
      penstock_channel_add_interceptor(handle.pointer, table, priority, &id, &error)
    }
  }

  /// The interceptors of the channel and of its runtime as JSON, in the order in which calls meet them.
  public func interceptors() throws(PenstockError) -> String {
    try text("the interceptors") { penstock_channel_interceptors_json(handle.pointer, &$0) }
  }
}

extension Runtime {
  /// Adds an interceptor for calls on every channel of the runtime; see
  /// ``Channel/addInterceptor(_:_:priority:methods:kinds:level:)``.
  @discardableResult
  public func addInterceptor(
    _ name: String, _ interception: Interception, priority: Int32 = 0, methods: [String] = [],
    kinds: Set<CallKind> = [], level: InterceptorLevel = .bytes
  ) throws(PenstockError) -> Registration {
    let place = InterceptorPlace(name: name, methods: methods, kinds: kinds, level: level)
    return try Registration(interception, at: place, priority, captures) { table, id, error in
      penstock_runtime_add_interceptor(handle.pointer, table, priority, &id, &error)
    }
  }
}
