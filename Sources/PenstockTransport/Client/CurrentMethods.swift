import PenstockCall
import PenstockChannel
import PenstockWire
import Synchronization

/// The settings that the service config has at present for a channel's calls, method by method. The driving thread sets
/// them, and each call takes its own when it is made.
final class CurrentMethods: @unchecked Sendable {
  private let lock = Lock()
  private var all: MethodConfigs
  /// Whether any method has a config: if none has, calls take no lock here.
  private let hasAny: Atomic<Bool>

  init(_ all: MethodConfigs) {
    self.all = all
    hasAny = Atomic(!all.isEmpty)
  }

  @inline(__always)
  var isInUse: Bool { hasAny.load(ordering: .acquiring) }

  @inline(never) @_optimize(size)
  func set(_ all: MethodConfigs) {
    let old = lock.withLock { () -> MethodConfigs in
      let old = self.all
      self.all = all
      hasAny.store(!all.isEmpty, ordering: .releasing)
      return old
    }
    withExtendedLifetime(old) {}
  }

  /// Gives the config of its method to a request that nobody else has yet. Of the deadline and of each limit the
  /// smaller one counts, be it the config's or the call's; the config decides "wait for ready" only if the call's
  /// options don't.
  @inline(never) @_optimize(size)
  func apply(to request: Request, _ options: CallOptions?, now: UInt64) {
    guard let config = lock.withLock({ all.find(request.pathView) }) else { return }
    if options?.waitsForReady == nil, let waits = config.waitsForReady {
      request.settings.waitsForReady = waits
    }
    if let most = config.maxRequestBytes {
      request.settings.maxSendBytes = min(request.settings.maxSendBytes, most)
    }
    if let most = config.maxResponseBytes {
      request.settings.maxReceiveBytes = min(request.settings.maxReceiveBytes, most)
    }
    if let timeout = config.timeout {
      let end = Time.after(timeout, now)
      request.deadline = min(end, request.deadline ?? .max)
    }
  }
}
