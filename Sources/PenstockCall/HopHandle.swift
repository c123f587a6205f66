import PenstockWire
import Synchronization

/// The object behind a `penstock_hop` or a `penstock_request`: a hop at an event. In a callback the object is
/// the `Hop` itself, at the event that the callback is about. A `BoundHop` is another handle of a hop, at an
/// event that waits.
open class HopHandle {
  /// The `Refusal` of the last function that got this handle and returned E_STATE. Any thread.
  final let refusal = Atomic<UInt8>(Refusal.none.rawValue)

  public init() {}

  /// This handle, if it is a `BoundHop`; nil: it is the hop itself.
  open var bound: BoundHop? { nil }

  /// The kind of the handle: a `penstock_request` may belong to something other than a hop.
  public enum Form {
    case hop
    /// The request of call options (`penstock_call_options_request`).
    case options
    /// The request that a picker looks at (`penstock_pick_request`).
    case pick
  }

  open var form: Form { .hop }

  public enum Referent {
    case running(Hop)
    case bound(BoundHop)

    /// The hop, for functions that do not depend on the event.
    public var hop: Hop {
      switch self {
      case .running(let hop): hop
      case .bound(let bound): bound.hop
      }
    }
  }

  /// The object that the handle refers to. Only `Hop.from` turns a hop's own handle into the hop.
  @inline(never)
  public static func referent(_ handle: OpaquePointer) -> Referent {
    let object = Unmanaged<HopHandle>.fromOpaque(UnsafeRawPointer(handle)).takeUnretainedValue()
    if let bound = object.bound { return .bound(bound) }
    return .running(Hop.from(handle))
  }
}

/// A handle of a hop at an event that waits. Any thread may use it, not only the callback's. A function that
/// a kind of handle does not offer returns `.state`, 0 or nil.
open class BoundHop: HopHandle {
  public final let hop: Hop

  public init(_ hop: Hop) { self.hop = hop }

  public final override var bound: BoundHop? { self }

  /// The event that waits; `.none` when it does not wait any more.
  open var event: EventKind { .none }
  open var metadata: Metadata? { nil }
  open var message: Message? { nil }
  open var status: Status? { nil }
  open func setMessage(_ fresh: Message) -> Outcome { refuse(.noMessage) }
  /// Ends the wait of the event with a verdict.
  open func resolve(_ verdict: Verdict) -> Outcome { refuse(.ownHandle) }
  /// Ends the wait of the event, and the call with it.
  open func end(_ status: Status) -> Outcome { refuse(.ownHandle) }
  /// Lets start go on, and waits for the response.
  open func next() -> Outcome { refuse(.notSynchronous) }
  open func takeTicket() -> UInt64 { 0 }
  /// Called when somebody keeps the handle.
  open func becomeShared() {}

  /// The start as this handle shows it; nil: it shows none.
  open var request: Request? { nil }
  open var requestMetadata: Metadata? { request?.metadata }
  open func edit(_ change: (Request) -> Outcome) -> Outcome { refuse(.startOrStatusOnly) }
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
}
