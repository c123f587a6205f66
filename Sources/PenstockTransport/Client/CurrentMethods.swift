import PenstockCall
import PenstockChannel
import PenstockWire
import Synchronization

/// What the service config says now of a channel's calls. The driving thread sets it, and each call looks at its beginning.
final class CurrentMethods: @unchecked Sendable {
  private let lock = Lock()
  private var all: MethodConfigs
  /// Whether there is any, so that the calls of a channel without a service config take no lock.
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

  /// Gives the config of its method to a request that nobody else has yet. The smaller deadline and limits hold; whether the
  /// call waits for a connection its own options say first.
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
