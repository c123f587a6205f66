import CPenstockSystem
import PenstockNames
import PenstockWire

/// The services that a runtime takes from the outside world: time, readiness of descriptors, sockets, names.
/// Each runtime gets one such object when it is made. This class takes the services from the operating
/// system.
///
/// A subclass may replace any service, for example a simulator with a clock of its own and sockets in memory.
///
/// Nothing else in the library reads the system's clocks (scripts/lint looks for other readers). A platform replaces neither
/// threads nor the time for which a thread is parked. So only a host-driven runtime that one thread polls, and
/// that never parks a thread, may have a clock that differs from the system's. All runtimes that share an
/// interceptor object must have the same clock.
open class Platform {
  public init() {}

  /// The monotonic time in nanoseconds, counted from an arbitrary start. Any thread.
  open func clock() -> UInt64 { cs_monotonic() }

  /// `clock`, up to 10 ms old: it costs a quarter. Any thread.
  open func coarseClock() -> UInt64 { cs_monotonic_coarse() }

  /// Nanoseconds since 1970. Any thread.
  open func wallClock() -> UInt64 { cs_wall_clock() }

  /// The system's monotonic clock, by which the system ends the waits of parked threads. Only for the deadlines
  /// of such waits, and no subclass replaces it.
  public static func systemClock() -> UInt64 { cs_monotonic() }

  /// A random number of 64 bits.
  open func random() -> UInt64 { cs_random() }

  open func makePoller(host: Bool) -> Poller { Poller(host: host) }

  /// Begins to connect, without waiting. If this function opens a socket, the poller that `makePoller`
  /// returns can watch the socket's descriptor.
  open func connect(to address: SocketAddress, _ settings: SocketSettings) -> Socket.Opened {
    Socket.connect(to: address, settings)
  }

  /// Looks up the addresses of a host. Called on a lookup's thread, and may block for any time.
  open func addresses(of host: UnsafeRawPointer?, port: UInt16) -> LookupOutcome {
    Lookup.addresses(of: host, port: port)
  }

  /// Writes the DNS answer with the SRV records of a name to `answer`, which has room for `size` bytes.
  /// Returns the length of the answer, or a negative error code of getaddrinfo. Called on a lookup's thread,
  /// and may block for any time.
  open func services(of name: UnsafeRawPointer?, into answer: UnsafeMutableRawPointer?, _ size: Int32)
    -> Int32
  {
    cs_services(name, answer, size)
  }

  /// Begins to look up a host name, or the servers that the name's SRV records for `services` give. The completion may
  /// be called within this call. Returns the lookup, so that the caller can cancel it; nil: it is over.
  open func lookUp(
    _ host: ByteView, port: UInt16, services: ByteBuffer?, on runtime: Runtime,
    _ completion: any LookupCompletion
  ) -> Lookup? {
    Lookup.start(host: host, port: port, services: services, on: runtime, completion: completion)
  }
}
