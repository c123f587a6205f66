import PenstockCall
import PenstockWire
import Synchronization
import PenstockLoop

/// The options of calls, parsed once from JSON. An option that is nil is taken from the channel. The object
/// is also a handle of the request with which each call begins, so that the functions of request.h can set
/// that request without JSON.
public final class CallOptions: HopHandle {
  public var deadline: UInt64?
  public var hasDeadline = false
  /// The metadata of each call. The user may change it until other threads or calls use the options.
  public let metadata = Metadata()
  public var authority: ByteBuffer?
  private var shownAuthority: ByteBuffer?
  /// The authority with a NUL at its end. The buffer is valid until this property is read again.
  public var authorityText: ByteBuffer? {
    shownAuthority = authority.flatMap { Request.terminated($0.view) }
    return shownAuthority
  }
  /// The content-type and the user agent that a call sends.
  public var labels: RequestLabels?
  public var compression: Compression?
  public var maxReceiveBytes: Int?
  public var maxSendBytes: Int?
  public var idempotency = Idempotency.unknown
  public var allowsGET = true
  public var waitsForReady: Bool?
  /// The credentials: headers that each call sends, instead of metadata with equal names. Read-only, because
  /// all calls share the object.
  public var credentials: Metadata?
  public var codec: Codec?
  /// The program's pointer for each call that is made with these options.
  public var context: UserData?
  /// The size of the send buffer in bytes. nil: `sendBuffer`, or more for a client stream that has few
  /// messages in flight (`ClientCall.bytesAhead`).
  public var sendBufferBytes: Int?
  static let sendBuffer = 256 << 10
  public var isInterruptible = false
  /// The number of events that the trace of a call keeps. 0: no trace is kept. nil: the channel's default
  /// applies.
  public var traceEvents: Int?
  public var onInterrupted: (callback: Interrupted, userData: UserData)?
  public let generation = Process.generation
  /// The interceptors of each call that is made with these options.
  public let interceptors = OwnInterceptors()

  /// The lock guards `running` and `reason`. `running`: the unary calls that run with these options; the
  /// thread of each holds a reference to its call. `reason`: the text for the status of these calls if they
  /// are cancelled.
  private let lock = Lock()
  private var running: [Unmanaged<ClientCall>] = []
  private var reason: ByteBuffer?
  /// Whether the options were cancelled, and `reason` is set. A thread may read this flag without the lock.
  private let cancelled = Atomic<Bool>(false)

  public typealias Interrupted = @convention(c) (UnsafeMutableRawPointer?) -> Int32

  public override init() {}

  public override var form: Form { .options }

  deinit { if !Process.isForked(generation) { interceptors.removeAll() } }

  var isCancelled: Bool { cancelled.load(ordering: .acquiring) }

  /// Called on the thread of a unary call, after `prepare`. From now until `ended`, `cancel` cancels the
  /// call.
  func began(_ call: ClientCall) {
    lock.withLock {
      running.append(.passUnretained(call))
      if let reason { call.call.submit(.endLocally(Status(.cancelled, reason.view))) }
    }
  }

  func ended(_ call: ClientCall) {
    let known = Unmanaged.passUnretained(call).toOpaque()
    lock.withLock {
      guard let index = running.firstIndex(where: { $0.toOpaque() == known }) else { return }
      running.swapAt(index, running.count - 1)
      running.removeLast()
    }
  }

  /// Cancels the unary calls that run with these options, and all unary calls that begin later. Any thread.
  /// Only the first `cancel` has an effect.
  public func cancel(_ reason: ByteView) -> Outcome {
    if Process.isForked(generation) { return .forked }
    guard let copied = ByteBuffer(copying: reason) else { return .noMemory }
    return lock.withLock {
      if self.reason != nil { return .already }
      self.reason = copied
      cancelled.store(true, ordering: .releasing)
      // The end is submitted under the lock. A thread removes its call from `running` before it releases the
      // call, so all calls in the list still exist.
      for call in running {
        call._withUnsafeGuaranteedRef { $0.call.submit(.endLocally(Status(.cancelled, reason))) }
      }
      return .ok
    }
  }

  public func settings(_ defaults: CallDefaults) -> CallSettings {
    var made = CallSettings()
    made.compression = compression ?? defaults.compression
    made.maxReceiveBytes = maxReceiveBytes ?? defaults.maxReceiveBytes
    made.maxSendBytes = maxSendBytes ?? defaults.maxSendBytes
    made.idempotency = idempotency
    made.allowsGET = allowsGET
    made.waitsForReady = waitsForReady ?? defaults.waitsForReady
    made.credentials = credentials
    return made
  }
}

/// A channel's values for options that a call does not set itself.
public struct CallDefaults {
  public var deadline: UInt64?
  public var compression = Compression.identity
  public var maxReceiveBytes = 4 << 20
  public var maxSendBytes = Int(Int32.max)
  public var traceEvents = 0
  /// The content-type of calls if neither their options nor their codec have one; nil: the usual
  /// content-type.
  public var contentType: ByteBuffer?
  public var waitsForReady = false

  public init() {}

  var settings: CallSettings {
    var made = CallSettings()
    made.compression = compression
    made.maxReceiveBytes = maxReceiveBytes
    made.maxSendBytes = maxSendBytes
    made.waitsForReady = waitsForReady
    return made
  }
}

/// The callbacks of a call in callback style.
public struct CallCallbacks {
  public typealias Told = @convention(c) (OpaquePointer?, OpaquePointer?, UnsafeMutableRawPointer?) -> Void
  public typealias Sent = @convention(c) (OpaquePointer?, UInt64, UnsafeMutableRawPointer?) -> Void

  /// The user's callbacks, and the pointer that they get. The table holds no reference to the user data.
  public struct Table {
    public var onHeaders: Told?
    public var onMessage: Told?
    public var onSent: Sent?
    public var onReply: Told?
    let pointer: UnsafeMutableRawPointer?
  }

  public var table: Table
  /// Runs the user's finalizer for `pointer` when it is released; nil: there is no finalizer.
  let userData: UserData?

  public init(_ pointer: UnsafeMutableRawPointer?, _ finalizer: Finalizer?) {
    table = Table(pointer: pointer)
    userData = finalizer.map { UserData(pointer, $0) }
  }
}
