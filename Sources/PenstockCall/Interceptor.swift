import PenstockWire
import Synchronization

public typealias HopCallback = @convention(c) (OpaquePointer?, UnsafeMutableRawPointer?) -> Int32
public typealias HopCreate =
  @convention(c) (
    OpaquePointer?, UnsafeMutableRawPointer?, UnsafeMutablePointer<UnsafeMutableRawPointer?>?
  ) -> Int32
public typealias HopDestroy = @convention(c) (OpaquePointer?, UnsafeMutableRawPointer?) -> Void
/// The C function that an interceptor has for connection events: it gets the user data and a
/// `penstock_connection_event`.
public typealias ConnectionCallback =
  @convention(c) (UnsafeMutableRawPointer?, UnsafeRawPointer?) -> Void
public typealias Finalizer = @convention(c) (UnsafeMutableRawPointer?) -> Void

/// The verdicts that a callback may return; the raw values are those of the ABI.
public enum Verdict: Int32, Sendable {
  case next = 0
  case pause = 1
  case hold = 2
  case drop = 3
  case take = 4
  case restart = 5
  case skip = 6
}

/// An object that `UserData` tells before the finalizer runs, and releases after it.
public protocol UserDataListener: AnyObject {
  func finalizing()
}

/// A pointer of the user with its finalizer. The finalizer runs exactly once, when the last reference to this
/// object is released.
public final class UserData {
  public let pointer: UnsafeMutableRawPointer?
  private let finalizer: Finalizer?
  /// The object to tell before the finalizer runs; it is released afterwards. Set once, before any other
  /// thread has this `UserData`.
  public var listener: (any UserDataListener)?

  public init(_ pointer: UnsafeMutableRawPointer?, _ finalizer: Finalizer?) {
    self.pointer = pointer
    self.finalizer = finalizer
  }

  deinit {
    listener?.finalizing()
    finalizer?(pointer)
  }
}

/// One registered interceptor: its callbacks, its filter, and its user data. It is immutable, and all
/// registries and calls that use it share it. When the last reference to it is released, it releases its user
/// data.
public final class Registration {
  public struct Callbacks {
    public var create: HopCreate?
    public var destroy: HopDestroy?
    public var onStart: HopCallback?
    public var onSend: HopCallback?
    public var onHalfClose: HopCallback?
    public var onHeaders: HopCallback?
    public var onReceive: HopCallback?
    public var onStatus: HopCallback?
    public var onCancel: HopCallback?
    public var onDemand: HopCallback?
    public var onSent: HopCallback?
    public var onConnection: ConnectionCallback?
    public var onPick: HopCallback?

    public init() {}

    /// The callback for an event of this kind.
    func of(_ kind: EventKind) -> HopCallback? {
      switch kind {
      case .start: onStart
      case .send: onSend
      case .halfClose: onHalfClose
      case .headers: onHeaders
      case .receive: onReceive
      case .status: onStatus
      case .none, .cancel, .demand, .sent, .create, .destroy, .pick: nil
      }
    }
  }

  public static let defaultHoldBytes = 65536
  /// The kinds whose callers get one message: few of these callers look at the headers before it.
  public static let defaultHeadersWait: UInt32 =
    1 << CallKind.unary.rawValue | 1 << CallKind.clientStream.rawValue

  /// The number of the registration: unique in the process, increasing, never 0.
  public let id: UInt64
  public let name: ByteBuffer
  /// The filter given at registration. It may be replaced later: `Registry.Entry` has the filter in force.
  public let filter: CallFilter
  public let level: Level
  /// Whether the interceptor's hop at the bytes level is made anew with each attempt.
  public let isPerAttempt: Bool
  public let holdBytes: Int
  /// How many message bytes may be recorded, to be sent again by a RESTART; 0: the interceptor may not
  /// RESTART.
  public let replayBytes: Int
  public let maxRestarts: Int
  /// The kinds of calls in which response headers wait at a hop that may RESTART (`Hop.holdsHeaders`), as a
  /// mask of 1 << kind.
  public let headersWait: UInt32
  /// The executors that run the callbacks of the outbound and the inbound lane; nil: the driving thread runs
  /// them.
  public let outboundExecutor: (any Executor)?
  public let inboundExecutor: (any Executor)?
  let hasExecutors: Bool
  public let userData: UserData
  let callbacks: UnsafeMutablePointer<Callbacks>

  public init(
    id: UInt64, name: ByteBuffer, filter: MethodFilter, kinds: UInt32, level: Level = .bytes,
    isPerAttempt: Bool = false, holdBytes: Int, userData: UserData, callbacks: Callbacks,
    replayBytes: Int = 0, maxRestarts: Int = 1, headersWait: UInt32 = Registration.defaultHeadersWait,
    outboundExecutor: (any Executor)? = nil, inboundExecutor: (any Executor)? = nil
  ) {
    self.id = id
    self.name = name
    self.filter = CallFilter(filter, kinds: kinds)
    self.level = level
    self.isPerAttempt = isPerAttempt
    self.holdBytes = holdBytes == 0 ? Registration.defaultHoldBytes : holdBytes
    self.userData = userData
    self.callbacks = .allocate(capacity: 1)
    self.callbacks.initialize(to: callbacks)
    self.replayBytes = replayBytes
    self.maxRestarts = maxRestarts
    self.headersWait = headersWait
    self.outboundExecutor = outboundExecutor
    self.inboundExecutor = inboundExecutor
    hasExecutors = outboundExecutor != nil || inboundExecutor != nil
  }

  deinit { callbacks.deallocate() }

  /// The C function for connection events; nil: the interceptor has none.
  public var onConnection: ConnectionCallback? { callbacks.pointee.onConnection }

  /// Whether calls get a hop for this interceptor. They get none if its only callback is `onConnection`.
  public var hasHops: Bool {
    let all = callbacks.pointee
    if all.onConnection == nil || all.create != nil || all.destroy != nil { return true }
    return all.onStart != nil || all.onSend != nil || all.onHalfClose != nil || all.onHeaders != nil
      || all.onReceive != nil || all.onStatus != nil || all.onCancel != nil || all.onDemand != nil
      || all.onSent != nil || all.onPick != nil
  }

  /// Whether the interceptor's hop at `level` may RESTART. A hop that is made for each attempt may not; such hops
  /// are at the bytes level only.
  func records(at level: Level) -> Bool { replayBytes > 0 && (level == .object || !isPerAttempt) }

  // The chains that have the registration and count its calls, and the sums of the counts of chains that were
  // released.
  private let lock = SpinLock()
  private var links: UnsafeMutablePointer<ChainLink>?
  private var formerlyBegun: UInt64 = 0
  private var formerlyEnded: UInt64 = 0

  func add(_ link: UnsafeMutablePointer<ChainLink>) {
    lock.lock()
    link.pointee.next = links
    links?.pointee.previous = link
    links = link
    lock.unlock()
  }

  func remove(_ link: UnsafeMutablePointer<ChainLink>, of chain: Chain) {
    lock.lock()
    if let previous = link.pointee.previous {
      previous.pointee.next = link.pointee.next
    } else {
      links = link.pointee.next
    }
    link.pointee.next?.pointee.previous = link.pointee.previous
    formerlyBegun &+= chain.callsBegun
    formerlyEnded &+= chain.callsEnded
    lock.unlock()
  }

  /// How many calls have had the registration in their chain, and how many of them have not ended. Any
  /// thread.
  public var calls: (seen: UInt64, inFlight: UInt64) {
    lock.lock()
    var ended = formerlyEnded
    var seen = formerlyBegun
    var next = links
    while let link = next {
      link.pointee.chain._withUnsafeGuaranteedRef { chain in
        // `callsEnded` is read first, so a call that ends between the two reads counts as in flight.
        ended &+= chain.callsEnded
        seen &+= chain.callsBegun
      }
      next = link.pointee.next
    }
    lock.unlock()
    return (seen, seen > ended ? seen - ended : 0)
  }
}

/// One chain in a registration's list of its chains. The reference to the chain is not counted.
struct ChainLink {
  let chain: Unmanaged<Chain>
  var next: UnsafeMutablePointer<ChainLink>?
  var previous: UnsafeMutablePointer<ChainLink>?
}
