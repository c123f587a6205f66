import PenstockCall
import PenstockWire
import PenstockLoop
import PenstockTransport

/// The calls of a loop that have begun and not ended. Only the driving thread uses the list.
///
/// The list holds no references. A `ClientCall` and its `Call` hold each other until the call ends, and then
/// the call is removed from the list.
final class LiveCalls: ShutdownHook, @unchecked Sendable {
  private var first: Unmanaged<ClientCall>?
  /// The worker pool of the runtime. The reference is not counted, because the runtime holds the pool.
  var workers: Unmanaged<WorkerPool>?
  /// The graceful closings under way: one for each channel that closes when its calls have ended.
  private var farewells: [Farewell] = []
  private var hasFarewells = false

  func add(_ call: ClientCall) {
    let added = Unmanaged.passUnretained(call)
    call.nextLive = first
    first?._withUnsafeGuaranteedRef { $0.previousLive = added }
    first = added
  }

  func remove(_ call: ClientCall) {
    let (next, previous) = (call.nextLive, call.previousLive)
    if let previous {
      previous._withUnsafeGuaranteedRef { $0.nextLive = next }
    } else if first?.toOpaque() == Unmanaged.passUnretained(call).toOpaque() {
      first = next
    }
    next?._withUnsafeGuaranteedRef { $0.previousLive = previous }
    call.nextLive = nil
    call.previousLive = nil
    if hasFarewells { tellFarewells(call) }
  }

  private func tellFarewells(_ call: ClientCall) {
    for farewell in farewells where call.isOn(farewell.channel) || call.wasRedirected {
      farewell.hasOneLess(self)
    }
  }

  func add(_ farewell: Farewell) {
    farewells.append(farewell)
    hasFarewells = true
  }

  func remove(_ farewell: Farewell) {
    farewells.drop(farewell)
    hasFarewells = !farewells.isEmpty
  }

  /// The number of calls that were made on `channel` or run on it after a redirect.
  func count(on channel: ClientChannel) -> Int {
    var count = 0
    var next = first
    while let call = next?.takeUnretainedValue() {
      if call.isOn(channel) { count += 1 }
      next = call.nextLive
    }
    return count
  }

  /// All calls, the most recent first.
  var all: [ClientCall] {
    var found: [ClientCall] = []
    var next = first
    while let call = next?.takeUnretainedValue() {
      found.append(call)
      next = call.nextLive
    }
    return found
  }

  /// Ends the calls that were made on `channel` or run on it after a redirect; nil: all calls. Each call that
  /// ends removes itself from the list.
  func end(_ channel: ClientChannel?, _ why: Closing) {
    var ending: [ClientCall] = []
    var next = first
    while let call = next?.takeUnretainedValue() {
      if channel.map({ call.isOn($0) }) ?? true { ending.append(call) }
      next = call.nextLive
    }
    for call in ending { call.call.perform(.endLocally(why.status)) }
  }

  func runtimeShutdown(_ why: Closing) { end(nil, why) }

  // MARK: In a child of fork

  func becomeChild(_ calls: inout InheritedCalls) {
    workers?._withUnsafeGuaranteedRef { $0.becomeChild() }
    var next = first
    while let call = next?.takeUnretainedValue() {
      calls.all += 1
      if call.isCallbackStyle { calls.inBackground += 1 }
      next = call.nextLive
    }
  }

  func endInherited() { end(nil, .forked) }

  /// Asks a new runtime, on its driving thread, to tell `live` when it shuts down.
  final class Registering: InboxItem {
    private let live: LiveCalls
    private unowned(unsafe) let runtime: Runtime

    init(_ live: LiveCalls, _ runtime: Runtime) {
      self.live = live
      self.runtime = runtime
    }

    /// The `unowned` reference is safe: `runtime` exists, because it is running this item.
    override func run() { runtime.onShutdown(live) }
  }
}
