import CSystem
import PenstockWire

/// The services that a runtime takes from the world outside: time, readiness, sockets, names. One object, given when the
/// runtime is made, and asked for nothing but this; here it is the operating system.
///
/// Another class in its place (a simulator's, with a clock of its own and sockets in memory) replaces any of them. As
/// the library has no other, its compiler calls these functions directly: they cost nothing.
///
/// Threads are the system's, and so is the time for which one is parked: a clock that goes otherwise is for a host-driven
/// runtime, whose one thread never is. Interceptors that are made without a runtime have the system's clock, too.
class Platform {
  init() {}

  /// Monotonic nanoseconds, from any beginning.
  func clock() -> UInt64 { cs_monotonic() }

  func makePoller(host: Bool) -> Poller { Poller(host: host) }

  /// Begins to connect. The poller watches the result.
  @inline(never) @_optimize(size)
  func connect(to address: SocketAddress) -> Socket.Opened { Socket.connect(to: address) }

  @inline(never) @_optimize(size)
  func makeResolver(_ location: Target.Location, _ runtime: Runtime) -> Resolver {
    Resolver.make(location, runtime)
  }
}
