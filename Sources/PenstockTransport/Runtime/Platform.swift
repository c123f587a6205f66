import CSystem
import PenstockChannel
import PenstockWire

/// The services that a runtime takes from the outside world: time, readiness of descriptors, sockets, names.
/// Each runtime gets one such object when it is made. This class takes the services from the operating
/// system.
///
/// A subclass may replace any service, for example a simulator with a clock of its own and sockets in memory.
/// The library itself has no subclass, so the compiler calls these functions directly, at no cost.
///
/// A platform replaces neither threads nor the time for which a thread is parked. So only a host-driven
/// runtime that one thread polls, and that never parks a thread, may have a clock that differs from the
/// system's. Interceptors that are made without a runtime use the system's clock.
class Platform {
  init() {}

  /// The monotonic time in nanoseconds, counted from an arbitrary start.
  func clock() -> UInt64 { cs_monotonic() }

  /// A random number of 64 bits.
  func random() -> UInt64 { cs_random() }

  func makePoller(host: Bool) -> Poller { Poller(host: host) }

  /// Begins to connect, without waiting. If this function opens a socket, the poller that `makePoller`
  /// returns can watch the socket's descriptor.
  func connect(to address: SocketAddress) -> Socket.Opened { Socket.connect(to: address) }

  /// Looks up the addresses of a host. Called on a lookup's thread, and may block for any time.
  func addresses(of host: UnsafeRawPointer?, port: UInt16) -> ResolverOutcome {
    Lookup.addresses(of: host, port: port)
  }

  /// Writes the DNS answer with the SRV records of a name to `answer`, which has room for `size` bytes.
  /// Returns the length of the answer, or a negative error code of getaddrinfo. Called on a lookup's thread,
  /// and may block for any time.
  func services(of name: UnsafeRawPointer?, into answer: UnsafeMutableRawPointer?, _ size: Int32) -> Int32 {
    cs_services(name, answer, size)
  }

  func makeResolver(_ location: Target.Location, services: ByteBuffer?, _ runtime: Runtime) -> Resolver {
    Resolver.make(location, services: services, runtime)
  }
}
