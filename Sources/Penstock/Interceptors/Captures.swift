internal import CPenstock
import Synchronization

/// Takes a value from the task that makes a call along to the observers of that call, for the products of this package.
///
/// The callbacks of a call run on the runtime's thread, where the task-local values of the program are not visible. So an
/// interception that needs some names a capture, and the channel runs it in ``Channel/call(_:_:options:)``, on the task
/// that makes the call. A call keeps what was taken until its last callback has returned.
package final class Capture<Value: Sendable>: CaptureSource {
  private let take: @Sendable () -> Value
  private let values = Locked<[UInt: Value]>([:])

  package init(_ take: @escaping @Sendable () -> Value) { self.take = take }

  package func run(for key: UInt) {
    let value = take()
    values.withLock { $0[key] = value }
  }

  package func forget(_ key: UInt) {
    // The value goes after the lock: its end may run code of the program.
    _ = values.withLock { $0.removeValue(forKey: key) }
  }

  /// The value for a call; nil: the call was not made by a function of this module.
  func value(for key: UInt) -> Value? { values.withLock { $0[key] } }
}

/// A ``Capture`` of any value.
package protocol CaptureSource: AnyObject, Sendable {
  /// Takes the value that the call of `key` keeps.
  func run(for key: UInt)
  /// Drops the value of a call that has ended.
  func forget(_ key: UInt)
}

/// The values that one call has taken along; it is the call's context in the C API.
///
/// Its address is the key of the values. A call of a program in C, on the same runtime, may have a context of its own
/// kind, so no observer ever follows the pointer: it only looks the key up.
final class Captured: Sendable {
  private let sources: [any CaptureSource]
  var key: UInt { UInt(bitPattern: Unmanaged.passUnretained(self).toOpaque()) }

  init(_ sources: [any CaptureSource]) {
    self.sources = sources
    for source in sources { source.run(for: key) }
  }

  deinit {
    for source in sources { source.forget(key) }
  }

  /// Gives these values to the calls that are made with `options`.
  func keep(in options: OpaquePointer) throws(PenstockError) {
    let context = Unmanaged.passRetained(self).toOpaque()
    try attempt("the call's context") { _ in
      penstock_call_options_set_context(options, context) { context in
        if let context { Unmanaged<Captured>.fromOpaque(context).release() }
      }
    }
  }
}

/// The captures that the interceptors of one channel, or of one runtime, want to be run for each call.
final class CaptureList: Sendable {
  private struct Wanted {
    let source: any CaptureSource
    /// How many registrations want it.
    var count: Int
  }

  private let wanted = Locked<[Wanted]>([])
  /// How many entries there are: most channels have none, and their calls take no lock.
  private let count = Atomic<Int>(0)

  /// Keeps a capture in a list for as long as a registration lives.
  final class Lease: Sendable {
    private let list: CaptureList
    private let source: any CaptureSource

    init(_ list: CaptureList, _ source: any CaptureSource) {
      self.list = list
      self.source = source
      list.change(source, by: 1)
    }

    deinit { list.change(source, by: -1) }
  }

  private func change(_ source: any CaptureSource, by step: Int) {
    wanted.withLock { wanted in
      if let index = wanted.firstIndex(where: { $0.source === source }) {
        wanted[index].count += step
        if wanted[index].count == 0 { wanted.remove(at: index) }
      } else {
        wanted.append(Wanted(source: source, count: step))
      }
      count.store(wanted.count, ordering: .releasing)
    }
  }

  var sources: [any CaptureSource] {
    if count.load(ordering: .acquiring) == 0 { return [] }
    return wanted.withLock { $0.map(\.source) }
  }
}

extension Channel {
  /// Runs the captures that the interceptors of this channel and of its runtime want; nil: they want none.
  func capture() -> Captured? {
    var sources = captures.sources
    for source in runtimeCaptures.sources where !sources.contains(where: { $0 === source }) {
      sources.append(source)
    }
    return sources.isEmpty ? nil : Captured(sources)
  }
}
