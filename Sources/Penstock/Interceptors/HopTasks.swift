internal import CPenstock

/// The tasks in which the functions of one instance run, for one hop of one call.
///
/// The library shows an event and waits until its hop is resolved; the task resolves it when the function has returned. An
/// event is copied in the library's callback, since its values may change once it does not wait any more. Only the end of
/// a call shows an event while the function for an earlier one still runs: that function's task is cancelled, and the
/// last function waits for it. So law 1 holds whatever the functions do.
final class HopTasks: Sendable {
  private enum Lane { case outbound, inbound }

  /// The functions that run for events which wait.
  private struct Running {
    var outbound: Task<Void, Never>?
    var inbound: Task<Void, Never>?

    mutating func set(_ lane: Lane, _ task: Task<Void, Never>?) {
      switch lane {
      case .outbound: outbound = task
      case .inbound: inbound = task
      }
    }
  }

  private let name: String
  private let interceptor: any Interceptor
  private let running = Locked(Running())

  private init(_ name: String, _ interceptor: any Interceptor) {
    self.name = name
    self.interceptor = interceptor
  }

  /// Runs `function`, and then `settle`, which lets the event go on; an error ends the call.
  private func run<Value: Sendable>(
    _ lane: Lane, _ bound: Handle, _ value: Value,
    _ function: @escaping @Sendable (inout Value) async throws -> Void,
    _ settle: @escaping @Sendable (OpaquePointer, Value) throws -> Void
  ) {
    running.withLock { running in
      let task = Task { [self] in
        var value = value
        let error: (any Error)?
        do {
          try await function(&value)
          error = nil
        } catch let thrown { error = thrown }
        // The next event comes as soon as this one has been settled.
        self.running.withLock { $0.set(lane, nil) }
        do {
          if let error { throw error }
          try settle(bound.pointer, value)
        } catch { HopEnd.end(bound.pointer, name, error) }
      }
      running.set(lane, task)
    }
  }

  /// Runs the function for the end of a call that nothing can delay, behind those that still run.
  private func runLast(_ function: @escaping @Sendable () async -> Void) {
    let before = stop()
    Task {
      for task in before { await task.value }
      await function()
    }
  }

  /// Cancels the functions that run; their events don't wait any more.
  @discardableResult private func stop() -> [Task<Void, Never>] {
    let tasks = running.withLock { running in
      defer { running = Running() }
      return [running.outbound, running.inbound].compactMap { $0 }
    }
    // The program's own cancellation handlers don't run on the runtime's thread.
    if !tasks.isEmpty { Task.detached { for task in tasks { task.cancel() } } }
    return tasks
  }

  // ---- Events ----

  private func start(_ bound: Handle) {
    let before = CallStart(bound.pointer)
    run(.outbound, bound, before) { [interceptor] in
      try await interceptor.onStart(&$0)
    } _: { hop, start in
      try start.settle(at: hop, before: before)
    }
  }

  private func request(_ bound: Handle) {
    let message = InterceptedMessage(bound.pointer)
    run(.outbound, bound, message) { [interceptor] in
      try await interceptor.onRequest(&$0)
    } _: { hop, message in
      try message.settle(at: hop)
    }
  }

  private func halfClose(_ bound: Handle) {
    run(.outbound, bound, ()) { [interceptor] _ in
      try await interceptor.onHalfClose()
    } _: { hop, _ in
      penstock_hop_resolve(hop, PENSTOCK_NEXT)
    }
  }

  private func headers(_ bound: Handle) {
    let before = Metadata(penstock_hop_metadata(bound.pointer))
    run(.inbound, bound, before) { [interceptor] in
      try await interceptor.onHeaders(&$0)
    } _: { hop, headers in
      if headers != before { try headers.write(to: penstock_hop_metadata(hop)) }
      penstock_hop_resolve(hop, PENSTOCK_NEXT)
    }
  }

  private func response(_ bound: Handle) {
    let message = InterceptedMessage(bound.pointer)
    run(.inbound, bound, message) { [interceptor] in
      try await interceptor.onResponse(&$0)
    } _: { hop, message in
      try message.settle(at: hop)
    }
  }

  private func status(_ bound: Handle) {
    let before = Status(penstock_hop_status(bound.pointer))
    // There is no ticket for the status of a cancel or a deadline, which nothing delays.
    guard penstock_hop_ticket(bound.pointer) != 0 else {
      penstock_hop_resolve(bound.pointer, PENSTOCK_NEXT)
      return runLast { [interceptor] in
        var status = before
        try? await interceptor.onStatus(&status)
      }
    }
    run(.inbound, bound, before) { [interceptor] in
      try await interceptor.onStatus(&$0)
    } _: { hop, status in
      if status != before, let target = penstock_hop_status(hop) { try status.write(to: target) }
      penstock_hop_resolve(hop, PENSTOCK_NEXT)
    }
  }

  // ---- The table of callbacks ----

  /// The objects that a registration keeps.
  private final class Factory: Sendable {
    let name: String
    let make: @Sendable (InterceptedCallInfo) -> (any Interceptor)?
    init(_ name: String, _ make: @escaping @Sendable (InterceptedCallInfo) -> (any Interceptor)?) {
      self.name = name
      self.make = make
    }
  }

  /// The callbacks for an interceptor of instances. The table has a reference to the factory, and each hop one to its
  /// tasks, which `destroy` gives back.
  static func table(
    _ name: String, _ events: InterceptedEvents,
    _ make: @escaping @Sendable (InterceptedCallInfo) -> (any Interceptor)?
  ) -> penstock_async_interceptor {
    var table = penstock_async_interceptor()
    table.user_data = Unmanaged.passRetained(Factory(name, make)).toOpaque()
    table.finalizer = { data in
      if let data { Unmanaged<Factory>.fromOpaque(data).release() }
    }
    table.create = { hop, data, state in
      guard let data, let state else { return PENSTOCK_SKIP }
      let factory = Unmanaged<Factory>.fromOpaque(data).takeUnretainedValue()
      guard let interceptor = factory.make(InterceptedCallInfo(hop)) else { return PENSTOCK_SKIP }
      state.pointee = Unmanaged.passRetained(HopTasks(factory.name, interceptor)).toOpaque()
      return PENSTOCK_NEXT
    }
    table.destroy = { _, state in
      guard let state else { return }
      Unmanaged<HopTasks>.fromOpaque(state).takeRetainedValue().stop()
    }
    if events.contains(.start) { table.on_start = { HopTasks.of($1)?.start(HopEnd.bound($0)) } }
    if events.contains(.request) { table.on_send = { HopTasks.of($1)?.request(HopEnd.bound($0)) } }
    if events.contains(.halfClose) { table.on_half_close = { HopTasks.of($1)?.halfClose(HopEnd.bound($0)) } }
    if events.contains(.headers) { table.on_headers = { HopTasks.of($1)?.headers(HopEnd.bound($0)) } }
    if events.contains(.response) { table.on_receive = { HopTasks.of($1)?.response(HopEnd.bound($0)) } }
    if events.contains(.status) { table.on_status = { HopTasks.of($1)?.status(HopEnd.bound($0)) } }
    table.on_cancel = { hop, state in
      guard let tasks = HopTasks.of(state) else { return 0 }
      let status = Status(penstock_hop_status(hop))
      tasks.runLast { [interceptor = tasks.interceptor] in await interceptor.onCancel(status) }
      return 0
    }
    if !events.contains(.cancel) { table.on_cancel = nil }
    return table
  }

  private static func of(_ state: UnsafeMutableRawPointer?) -> HopTasks? {
    state.map { Unmanaged<HopTasks>.fromOpaque($0).takeUnretainedValue() }
  }
}

/// How an interceptor's hop is kept, and how it ends a call.
enum HopEnd {
  /// The hop that an asynchronous callback gets, which is never NULL.
  static func bound(_ hop: OpaquePointer?) -> Handle {
    guard let hop else { preconditionFailure("a callback without a hop") }
    return Handle(hop, penstock_hop_release)
  }

  /// Ends the call with an error of the program.
  static func end(_ hop: OpaquePointer, _ name: String, _ error: any Error) {
    if let error = error as? RPCError, let status = try? error.status.made() {
      penstock_hop_end_with(hop, status.pointer)
    } else {
      penstock_hop_end(hop, PENSTOCK_STATUS_INTERNAL, "interceptor \"\(name)\" failed: \(error)")
    }
  }
}
