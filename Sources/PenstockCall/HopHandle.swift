import PenstockWire
import Synchronization

/// The object behind a `penstock_hop` or a `penstock_request`: a hop at a certain event. In a callback the
/// object is the `Hop` itself, and the event is that of the callback. Code that uses an event after its
/// callback has a `BoundHop` instead: a handle for a hop and an event that waits.
open class HopHandle {
  /// The `Refusal` of the last function that got this handle and returned E_STATE. Any thread.
  final let refusal = Atomic<UInt8>(Refusal.none.rawValue)

  public init() {}

  /// This object, if it is a `BoundHop`; otherwise nil, as by default.
  open var bound: BoundHop? { nil }

  /// The owner of the handle: a `penstock_request` need not belong to a hop.
  public enum Form {
    case hop
    /// The request of call options (`penstock_call_options_request`).
    case options
    /// The request that a picker looks at (`penstock_pick_request`).
    case pick
  }

  /// By default the owner is a hop.
  open var form: Form { .hop }

  public enum Referent {
    case running(Hop)
    case bound(BoundHop)

    /// The hop, for functions for which the event does not matter.
    public var hop: Hop {
      switch self {
      case .running(let hop): hop
      case .bound(let bound): bound.hop
      }
    }
  }

  /// The object to which the handle refers. A handle of a `Hop` goes through `Hop.from`, which notes the use.
  public static func referent(_ handle: OpaquePointer) -> Referent {
    let object = Unmanaged<HopHandle>.fromOpaque(UnsafeRawPointer(handle)).takeUnretainedValue()
    if let bound = object.bound { return .bound(bound) }
    return .running(Hop.from(handle))
  }
}

/// A handle for a hop and an event that waits. Any thread may use it. A subclass overrides the functions that
/// it offers, `event` among them; the others return `.state`, 0 or nil.
open class BoundHop: HopHandle {
  public final let hop: Hop

  public init(_ hop: Hop) { self.hop = hop }

  public final override var bound: BoundHop? { self }

  /// The kind of the event that waits; `.none` when it waits no longer.
  open var event: EventKind { mustOverride(.none) }
  /// The metadata of the event; nil by default.
  open var metadata: Metadata? { nil }
  /// The message of the event; nil by default.
  open var message: Message? { nil }
  /// The status of the event; nil by default.
  open var status: Status? { nil }
  open func setMessage(_ fresh: Message) -> Outcome { refuse(.noMessage) }
  /// Ends the wait of the event, with `verdict`.
  open func resolve(_ verdict: Verdict) -> Outcome { refuse(.ownHandle) }
  /// Ends the wait of the event, and ends the call with `status`.
  open func end(_ status: Status) -> Outcome { refuse(.ownHandle) }
  /// Lets start go on, and waits for the response. Only an interceptor in the synchronous style can do this.
  open func next() -> Outcome { refuse(.notSynchronous) }
  /// A ticket for the event; 0 by default: nobody else may end the wait.
  open func takeTicket() -> UInt64 { 0 }
  /// Called when a user keeps the handle beyond its callback. By default any thread may use the handle all the same.
  open func becomeShared() {}

  /// The request of start, where this handle shows it; otherwise, and by default, nil.
  open var request: Request? { nil }
  open var requestMetadata: Metadata? { request?.metadata }
  open func edit(_ change: (Request) -> Outcome) -> Outcome { refuse(.startOrStatusOnly) }
  /// Calls `edit` with the record of the messages that are sent again.
  open func editRecord(_ edit: (Cut) -> Outcome) -> Outcome { refuse(.statusOnly) }
  open func setDeadline(_ time: UInt64?) -> Outcome {
    edit {
      $0.deadline = time
      return .ok
    }
  }

  open func deliver(_ headers: Metadata) -> Outcome { hop.deliverHeaders(headers) }
  open func deliver(_ message: Message) -> Outcome { hop.injectInbound(message) }
  open func deliver(_ status: Status) -> Outcome { hop.deliverStatus(status) }

  open func setValue(_ key: ByteView, _ value: UserData?) -> Outcome { hop.setValue(key, value) }
  open func value(_ key: ByteView) -> UnsafeMutableRawPointer? { hop.value(key) }
  open var context: UnsafeMutableRawPointer? { hop.context }
}
