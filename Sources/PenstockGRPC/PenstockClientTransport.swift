#if GRPCSwift
  public import GRPCCore
  public import Penstock

  // `PenstockGRPC` lets code that is generated for grpc-swift 2 run on libpenstock: GRPCCore keeps its clients, its
  // interceptors, its retries and its deadlines, and each of its streams becomes a call of a Channel. It stands on the
  // public API of `Penstock`, and buffers nothing itself: a message is read when GRPCCore reads it, and a write waits until
  // the library has room. It never sends a request a second time by a policy: GRPCCore does that, above the transport.

  /// A transport for the clients of grpc-swift 2 on libpenstock.
  ///
  ///     try await withGRPCClient(transport: .penstock("127.0.0.1:50051", options: .cleartext)) { client in
  ///       let greeter = Helloworld_Greeter.Client(wrapping: client)
  ///       ...
  ///     }
  ///
  /// The interceptors of ``channel`` see each attempt of a call as a call of their own, beneath those of GRPCCore, and may
  /// be added, moved and removed while calls run.
  ///
  /// - Calls connect the channel by themselves, also before ``connect()``.
  /// - Retry and hedging policies of the `ServiceConfig` and of the call's options are GRPCCore's work. The channel's own
  ///   policies are off if the transport has made the channel. Requests that a server has certainly not processed are sent
  ///   again by the channel in any case.
  /// - The shorter of the deadlines that GRPCCore and the options of the transport's calls have ends the call; the
  ///   channel's default holds for a call without any.
  public final class PenstockClientTransport: ClientTransport {
    /// The form of messages between GRPCCore and this transport.
    public typealias Bytes = [UInt8]

    /// The channel that makes the calls: interceptors are added to it, and figures read from it.
    public let channel: Channel
    /// Decides whether GRPCCore may retry; nil: the service config says nothing about that.
    public let retryThrottle: RetryThrottle?

    private let methods: MethodTable
    /// The options that each call begins with.
    private let defaults: Penstock.CallOptions
    /// Whether the transport has made the channel, and closes it.
    private let ownsChannel: Bool
    private let remotePeer: String
    private let state = Locked(TransportState())

    /// Makes a transport with a channel of its own, which it closes at the end of ``connect()``.
    ///
    /// - Parameters:
    ///   - target: where the server is, as for `Channel`: "host:port", "dns:///host:port", "unix:/path" and others.
    ///   - options: the channel's options. Its retry policies are turned off. The balancing policy comes from
    ///     `serviceConfig` unless `options.serviceConfig` is set.
    ///   - serviceConfig: the options of methods, and the policies of retries and balancing.
    ///   - calls: the options that each call begins with, for what GRPCCore's options don't have, such as
    ///     `credentials` or `inherited`.
    ///   - runtime: what drives the channel; nil: the default runtime.
    /// - Throws: `PenstockError`: a target or an option that is not allowed, or certificates that can't be read.
    public convenience init(
      target: String, options: ChannelOptions = ChannelOptions(),
      serviceConfig: ServiceConfig = ServiceConfig(),
      calls: Penstock.CallOptions = Penstock.CallOptions(), on runtime: Runtime? = nil
    ) throws(PenstockError) {
      var options = options
      options.retries = false
      if options.serviceConfig == nil { options.serviceConfig = serviceConfig.balancing }
      let channel = try Channel(target, options: options, on: runtime)
      self.init(channel, serviceConfig, calls, ownsChannel: true)
    }

    /// Makes a transport that uses a channel of the program, beside other users of it. The channel stays open.
    ///
    /// - Parameters:
    ///   - channel: the channel. If its own service config has retry policies, it applies them to each attempt of
    ///     GRPCCore: leave them to one of the two.
    ///   - serviceConfig: the options of methods, and the policies of retries; the channel has its own balancing.
    ///   - calls: the options that each call begins with.
    public convenience init(
      channel: Channel, serviceConfig: ServiceConfig = ServiceConfig(),
      calls: Penstock.CallOptions = Penstock.CallOptions()
    ) {
      self.init(channel, serviceConfig, calls, ownsChannel: false)
    }

    private init(
      _ channel: Channel, _ serviceConfig: ServiceConfig, _ calls: Penstock.CallOptions, ownsChannel: Bool
    ) {
      self.channel = channel
      self.ownsChannel = ownsChannel
      methods = MethodTable(serviceConfig)
      defaults = calls
      retryThrottle = serviceConfig.throttle
      remotePeer = peer(ofTarget: channel.target)
    }

    /// Lets the channel connect, and returns when the transport has ended: after ``beginGracefulShutdown()`` and the last
    /// stream, or when the task is cancelled, which cancels the streams.
    ///
    /// - Throws: `RPCError` with `failedPrecondition`: it was called before.
    public func connect() async throws {
      guard state.withLock({ $0.connect() }) else {
        throw GRPCCore.RPCError(code: .failedPrecondition, message: "connect() was called a second time")
      }
      channel.connect()
      await withTaskCancellationHandler {
        await withCheckedContinuation { continuation in
          let waits = state.withLock { $0.wait(continuation) }
          if !waits { continuation.resume() }
        }
      } onCancel: {
        finish(state.withLock { $0.cancel() })
      }
    }

    /// Refuses new streams. Running ones go on; after the last of them ``connect()`` returns. A further attempt that
    /// GRPCCore makes for a running call is a new stream: the call ends with `failedPrecondition` in its place.
    public func beginGracefulShutdown() {
      finish(state.withLock { $0.shutDown() })
    }

    /// Opens a stream for the time in which `closure` runs. The call begins when the request's metadata is written; the
    /// end of `closure` cancels a call that has not ended.
    ///
    /// - Throws: `RPCError` with `failedPrecondition`: the transport is shut down; otherwise what `closure` throws.
    public func withStream<T: Sendable>(
      descriptor: MethodDescriptor, options: GRPCCore.CallOptions,
      _ closure: (_ stream: RPCStream<Inbound, Outbound>, _ context: ClientContext) async throws -> T
    ) async throws -> T {
      let merged = options.over(methods[descriptor])
      let stream = ClientStream(channel, descriptor, merged, defaults)
      guard let id = state.withLock({ $0.open(stream) }) else {
        throw GRPCCore.RPCError(code: .failedPrecondition, message: "the transport is shut down")
      }
      defer {
        stream.fail(GRPCCore.RPCError(code: .cancelled, message: "the stream is closed"))
        finish(state.withLock { $0.close(id) })
      }
      let context = ClientContext(descriptor: descriptor, remotePeer: remotePeer, localPeer: "penstock")
      return try await closure(
        RPCStream(
          descriptor: descriptor, inbound: RPCAsyncSequence(wrapping: ResponseParts(stream)),
          outbound: RPCWriter.Closable(wrapping: stream)), context)
    }

    /// The part of the service config that is about a method; nil: there is none.
    public func config(forMethod descriptor: MethodDescriptor) -> MethodConfig? { methods[descriptor] }

    /// Does what a step of the state has left to do outside of its lock.
    private func finish(_ rest: TransportState.Rest) {
      for stream in rest.cancelled {
        stream.fail(GRPCCore.RPCError(code: .cancelled, message: "the transport was cancelled"))
      }
      if rest.isEnd && ownsChannel { channel.close() }
      rest.waiter?.resume()
    }
  }

  extension ClientTransport where Self == PenstockClientTransport {
    /// A transport on libpenstock with a channel of its own; see ``PenstockClientTransport``.
    ///
    /// - Parameters:
    ///   - target: where the server is: "host:port", "dns:///host:port", "unix:/path" and others.
    ///   - options: the channel's options.
    ///   - serviceConfig: the options of methods, and the policies of retries and balancing.
    /// - Throws: `PenstockError`: a target or an option that is not allowed, or certificates that can't be read.
    public static func penstock(
      _ target: String, options: ChannelOptions = ChannelOptions(),
      serviceConfig: ServiceConfig = ServiceConfig()
    ) throws(PenstockError) -> PenstockClientTransport {
      try PenstockClientTransport(target: target, options: options, serviceConfig: serviceConfig)
    }

    /// A transport on a channel of the program; see ``PenstockClientTransport``.
    public static func penstock(
      _ channel: Channel, serviceConfig: ServiceConfig = ServiceConfig()
    ) -> PenstockClientTransport {
      PenstockClientTransport(channel: channel, serviceConfig: serviceConfig)
    }
  }
#endif
