import PenstockChannel
import PenstockLoop
import PenstockNames
import PenstockWire

public enum ResolverOutcome {
  /// At least one address, in the order in which they should be tried.
  case addresses([SocketAddress])
  /// At least one endpoint, in the order in which they should be tried, and the service config that the
  /// resolver has found. A nil config: the channel uses its own service config.
  case endpoints([Endpoint], ServiceConfig?)
  /// No addresses were found; the text is the reason.
  case failed([UInt8])
}

/// The receiver of a resolver's outcome. `resolved` is called on the driving thread.
protocol ResolverCompletion: AnyObject {
  func resolved(_ outcome: ResolverOutcome)
}

/// The source of a channel's addresses. To add a kind of source, write a subclass and add a case to `make`.
/// Driving thread only.
class Resolver {
  /// Asks for the addresses. The completion is called once, perhaps within this call, unless `stop` is called
  /// first.
  func start(_ completion: any ResolverCompletion) { mustOverride(()) }
  /// Ends the look-up. The completion is not called any more. By default no look-up outlasts `start`.
  func stop() {}
  /// Called when no addresses are wanted before the next `start`. Does nothing by default.
  func rest() {}
  /// Called when the channel is closed, or has got another resolver. Does nothing by default.
  func close() {}

  static func make(_ location: Target.Location, services: ByteBuffer?, _ runtime: Runtime) -> Resolver {
    switch location {
    case .addresses(let list): return FixedAddresses(list)
    case .name(let host, let port): return SystemResolver(host, port, services, runtime)
    }
  }
}

/// A resolver for a target that contains the addresses themselves.
final class FixedAddresses: Resolver {
  private let list: [SocketAddress]

  init(_ list: [SocketAddress]) { self.list = list }

  override func start(_ completion: any ResolverCompletion) { completion.resolved(.addresses(list)) }
}

/// A resolver that asks the operating system, on a thread of its own (`Lookup`).
final class SystemResolver: Resolver, LookupCompletion {
  private let host: ByteBuffer
  private let port: UInt16
  private let services: ByteBuffer?
  private let runtime: Runtime
  private var lookup: Lookup?
  /// The receiver of the look-up under way; nil: none is under way.
  private var completion: (any ResolverCompletion)?

  init(_ host: ByteBuffer, _ port: UInt16, _ services: ByteBuffer?, _ runtime: Runtime) {
    self.host = host
    self.port = port
    self.services = services
    self.runtime = runtime
  }

  override func start(_ completion: any ResolverCompletion) {
    self.completion = completion
    lookup = runtime.platform.lookUp(host.view, port: port, services: services, on: runtime, self)
  }

  func lookedUp(_ outcome: LookupOutcome) {
    let told = completion.take()
    switch outcome {
    case .addresses(let list): told?.resolved(.addresses(list))
    case .servers(let list):
      told?.resolved(
        .endpoints(list.map { Endpoint($0.address, weight: $0.weight, priority: $0.priority) }, nil))
    case .failed(let words): told?.resolved(.failed(words))
    }
  }

  override func stop() {
    lookup?.cancel()
    lookup = nil
    completion = nil
  }
}
