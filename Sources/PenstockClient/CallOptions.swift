import PenstockCall
import PenstockWire
import PenstockLoop
import PenstockLink
import PenstockTransport

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
  public var compressionUse: CompressionUse?
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
  /// The scope with which other threads cancel the calls that are made with these options.
  public var scope: CancelScope?
  public typealias OnInterrupted = (callback: Interrupted, userData: UserData)
  public var onInterrupted: OnInterrupted?
  public let generation = Process.generation
  /// The interceptors of each call that is made with these options.
  public let interceptors = OwnInterceptors()

  public typealias Interrupted = @convention(c) (UnsafeMutableRawPointer?) -> Int32

  public override init() {}

  public override var form: Form { .options }

  deinit { if !Process.isForked(generation) { interceptors.removeAll() } }

  public func settings(_ defaults: CallDefaults) -> CallSettings {
    var made = CallSettings()
    made.compression = compression ?? defaults.compression
    made.compressionUse = compressionUse ?? defaults.compressionUse
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
  public var compressionUse = CompressionUse.whereSmaller
  public var maxReceiveBytes = 4 << 20
  public var maxSendBytes = Int(Int32.max)
  public var traceEvents = 0
  /// The content-type of calls if neither their options nor their codec have one; nil: the usual
  /// content-type.
  public var contentType: ByteBuffer?
  public var waitsForReady = false
  /// The bytes of messages that one call, and all calls together, may keep for further attempts.
  public var replayBytes = 1 << 20
  public var channelReplayBytes = 64 << 20
  /// How many bytes of messages all calls together may have on their way to a connection; 0: no limit.
  public var maxBufferedBytes = 0
  /// How long a callback may take, in nanoseconds, before it is reported; 0: none is.
  public var slowCallback: UInt64 = 100_000_000

  public init() {}

  var settings: CallSettings {
    var made = CallSettings()
    made.compression = compression
    made.compressionUse = compressionUse
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
  public typealias Readable = @convention(c) (OpaquePointer?, UnsafeMutableRawPointer?) -> Void

  /// The user's callbacks, and the pointer that they get. The table holds no reference to the user data.
  public struct Table {
    public var onHeaders: Told?
    public var onMessage: Told?
    public var onSent: Sent?
    public var onReply: Told?
    /// In place of `onMessage`: the messages wait in the call until the user takes them.
    public var onReadable: Readable?
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
