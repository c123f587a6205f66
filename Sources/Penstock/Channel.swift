internal import CPenstock

/// A channel to a target: its connections, its credentials and its interceptors.
///
/// A channel connects at its first call. When the last reference has gone, running calls go on, and the connections close
/// after the last of them.
public final class Channel: Sendable {
  /// The state of a channel's connections.
  public enum Connectivity: Int32, Sendable {
    /// No connection; the next call begins one.
    case idle
    /// A connection is being made.
    case connecting
    /// Calls are sent at once.
    case ready
    /// No address could be reached; calls that don't wait for a connection fail.
    case transientFailure
    /// Closed for good.
    case shutdown
  }

  /// The target that the channel was made for.
  public let target: String
  let handle: Handle
  /// The options that the channel was made with.
  let options: ChannelOptions
  /// The values that the channel's interceptors, and those of its runtime, want from the tasks that make calls.
  let captures = CaptureList()
  let runtimeCaptures: CaptureList

  /// Makes a channel.
  ///
  /// - Parameters:
  ///   - target: "host:port", "dns:///host:port", "ipv4:1.2.3.4:5", "unix:/path" or a URL; include/penstock/channel.h
  ///     lists all forms.
  ///   - options: see ``ChannelOptions``.
  ///   - runtime: what drives the channel; nil: the default runtime.
  /// - Throws: ``PenstockError``: a target or an option that is not allowed, or certificates that can't be read.
  public init(
    _ target: String, options: ChannelOptions = ChannelOptions(), on runtime: Runtime? = nil
  ) throws(PenstockError) {
    let text = options.text.finished
    self.target = target
    self.options = options
    runtimeCaptures = runtime?.captures ?? Runtime.sharedCaptures
    handle = try make("the channel", penstock_channel_release) { channel, error in
      if let runtime {
        penstock_channel_new_on(runtime.handle.pointer, target, text, &channel, &error)
      } else {
        penstock_channel_new(target, text, &channel, &error)
      }
    }
  }

  /// Ends every call with CANCELLED and closes the connections. A second time does nothing.
  public func close() {
    penstock_channel_close(handle.pointer)
  }

  /// Closes the channel when its last call has ended, at the latest after `limit` (nil: without limit). Does not wait; new
  /// calls are refused at once.
  public func closeGracefully(within limit: Duration? = nil) {
    penstock_channel_close_gracefully(handle.pointer, limit.map { max(0, $0.milliseconds) } ?? -1)
  }

  /// Lets an idle channel connect, without a call.
  public func connect() {
    penstock_channel_connect(handle.pointer)
  }

  /// Lets the next attempt to connect begin at once instead of after its back-off.
  public func resetBackoff() {
    penstock_channel_reset_backoff(handle.pointer)
  }

  /// The state of the connections; it may have changed by now.
  public var connectivity: Connectivity {
    Connectivity(rawValue: penstock_channel_connectivity(handle.pointer)) ?? .shutdown
  }

  /// The states of the channel, beginning with the present one, until it is closed. A reader that is slow sees only the
  /// latest state.
  public func connectivityChanges() -> AsyncStream<Connectivity> {
    AsyncStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
      let watch = ConnectivityWatch(continuation)
      penstock_channel_watch_connectivity(
        handle.pointer, { watch, state in ConnectivityWatch.of(watch)?.tell(state) ?? 0 },
        Unmanaged.passRetained(watch).toOpaque(),
        { watch in if let watch { Unmanaged<ConnectivityWatch>.fromOpaque(watch).release() } })
    }
  }
}

/// Hands the states of a channel to a stream, and ends the stream when the library has ended the watch.
private final class ConnectivityWatch: Sendable {
  private let continuation: AsyncStream<Channel.Connectivity>.Continuation

  init(_ continuation: AsyncStream<Channel.Connectivity>.Continuation) { self.continuation = continuation }
  deinit { continuation.finish() }

  static func of(_ pointer: UnsafeMutableRawPointer?) -> ConnectivityWatch? {
    pointer.map { Unmanaged<ConnectivityWatch>.fromOpaque($0).takeUnretainedValue() }
  }

  func tell(_ state: Int32) -> Int32 {
    guard let state = Channel.Connectivity(rawValue: state) else { return 0 }
    if case .terminated = continuation.yield(state) { return 0 }
    return 1
  }
}
