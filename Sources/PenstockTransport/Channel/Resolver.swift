import PenstockChannel
import PenstockWire

/// The source of a channel's addresses. To add a source, write a subclass, and a case in `make`. Driving
/// thread only.
class Resolver {
  /// Asks for the addresses. The completion is called once, perhaps from within this function, unless `stop`
  /// is called before that.
  func start(_ completion: any ResolverCompletion) {}
  /// Ends the look-up without an answer.
  func stop() {}
  /// Called when no addresses are wanted until the next `start`.
  func rest() {}
  /// Called when the channel has closed, or has another resolver.
  func close() {}

  @inline(never) @_optimize(size)
  static func make(_ location: Target.Location, services: ByteBuffer?, _ runtime: Runtime) -> Resolver {
    switch location {
    case .addresses(let list): return FixedAddresses(list)
    case .name(let host, let port): return SystemResolver(host, port, services, runtime)
    }
  }
}

/// Takes the addresses from the target itself.
final class FixedAddresses: Resolver {
  private let list: [SocketAddress]

  init(_ list: [SocketAddress]) { self.list = list }

  override func start(_ completion: any ResolverCompletion) { completion.resolved(.addresses(list)) }
}

/// Takes the addresses from look-ups by the system, which run on a thread (`Lookup`).
final class SystemResolver: Resolver {
  private let host: ByteBuffer
  private let port: UInt16
  private let services: ByteBuffer?
  private let runtime: Runtime
  private var lookup: Lookup?

  init(_ host: ByteBuffer, _ port: UInt16, _ services: ByteBuffer?, _ runtime: Runtime) {
    self.host = host
    self.port = port
    self.services = services
    self.runtime = runtime
  }

  override func start(_ completion: any ResolverCompletion) {
    lookup = Lookup.start(
      host: host.view, port: port, services: services, on: runtime, completion: completion)
  }

  override func stop() {
    lookup?.cancel()
    lookup = nil
  }
}
