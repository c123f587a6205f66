import PenstockCall
import PenstockChannel
import PenstockWire
import Synchronization
import PenstockLoop

/// The settings for each method in a channel's current service config. The driving thread sets them. A new
/// call gets the settings of its method when it is made.
public final class CurrentMethods: @unchecked Sendable {
  private let lock = Lock()
  private var all: MethodConfigs
  /// Whether the service config has settings for any method. If not, calls take no lock here.
  private let hasAny: Atomic<Bool>

  public init(_ all: MethodConfigs) {
    self.all = all
    hasAny = Atomic(!all.isEmpty)
  }

  @inline(__always)
  public var isInUse: Bool { hasAny.load(ordering: .acquiring) }

  public func set(_ all: MethodConfigs) {
    let old = lock.withLock { () -> MethodConfigs in
      let old = self.all
      self.all = all
      hasAny.store(!all.isEmpty, ordering: .releasing)
      return old
    }
    withExtendedLifetime(old) {}
  }

  /// Applies the settings of the request's method to `request`. No other thread has access to `request` yet.
  /// For the deadline and for each limit, the smaller value of the settings and the call counts. The settings
  /// decide "wait for ready" only if the call's options don't.
  public func apply(to request: Request, waitsForReady: Bool?, now: UInt64) {
    guard let config = lock.withLock({ all.find(request.pathView) }) else { return }
    if waitsForReady == nil, let waits = config.waitsForReady {
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
