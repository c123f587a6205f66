import CSystem
import PenstockChannel
import PenstockWire

/// The services that a runtime takes from the world outside: time, readiness, sockets, names. A runtime gets one such
/// object when it is made. This class takes them from the operating system.
///
/// A subclass (a simulator with a clock of its own and sockets in memory) may replace any service. The library itself
/// has no subclass, so the compiler calls these functions directly, at no cost.
///
/// Threads are the system's, and so is the time for which a thread is parked: a clock that runs differently is for a
/// host-driven runtime only, whose one thread is never parked. Interceptors that are made without a runtime have the
/// system's clock, too.
class Platform {
  init() {}

  /// Monotonic nanoseconds, from any beginning.
  func clock() -> UInt64 { cs_monotonic() }

  /// A random number.
  @inline(never) @_optimize(size)
  func random() -> UInt64 { cs_random() }

  func makePoller(host: Bool) -> Poller { Poller(host: host) }

  /// Begins to connect. Once there is a socket, the poller of `makePoller` watches its descriptor.
  @inline(never) @_optimize(size)
  func connect(to address: SocketAddress) -> Socket.Opened { Socket.connect(to: address) }

  /// The addresses of a host. Called on a look-up's thread, for which this may take any time; so is `services`.
  @inline(never) @_optimize(size)
  func addresses(of host: UnsafeRawPointer?, port: UInt16) -> ResolverOutcome {
    Lookup.addresses(of: host, port: port)
  }

  /// The DNS answer with the SRV records of a name. The result is its length, or a code of getaddrinfo, which is negative.
  @inline(never) @_optimize(size)
  func services(of name: UnsafeRawPointer?, into answer: UnsafeMutableRawPointer?, _ size: Int32) -> Int32 {
    cs_services(name, answer, size)
  }

  @inline(never) @_optimize(size)
  func makeResolver(_ location: Target.Location, services: ByteBuffer?, _ runtime: Runtime) -> Resolver {
    Resolver.make(location, services: services, runtime)
  }
}
