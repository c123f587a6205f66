import PenstockWire

/// The object of a `penstock_hop`: a hop at an event. In a callback that is the `Hop` itself, at the event that the callback
/// is about; a `BoundHop` is another handle of a hop, at an event that waits.
open class HopHandle {
  public init() {}

  /// nil: the hop itself.
  open var bound: BoundHop? { nil }

  public enum Place {
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

  /// The handle's object. Every way from a hop's own handle to the hop leads through `Hop.from`.
  @inline(never)
  public static func place(_ handle: OpaquePointer) -> Place {
    let object = Unmanaged<HopHandle>.fromOpaque(UnsafeRawPointer(handle)).takeUnretainedValue()
    if let bound = object.bound { return .bound(bound) }
    return .running(Hop.from(handle))
  }
}

/// A hop's handle at an event that waits, for other threads than the callback's too. A function that one kind of handle does
/// not offer gives `.state`, or nothing.
open class BoundHop: HopHandle {
  public final let hop: Hop

  public init(_ hop: Hop) { self.hop = hop }

  public final override var bound: BoundHop? { self }

  /// `.none` when the event waits no more.
  open var event: EventKind { .none }
  open var metadata: Metadata? { nil }
  open var message: Message? { nil }
  /// The result of a function that this handle does not offer.
  open var absence: Outcome { event == .none ? .gone : .state }
  open var status: Status? { nil }
  open func setMessage(_ bytes: ByteView) -> Outcome { .state }
  open func setObject(_ object: CodecObject) -> Outcome { .state }
  /// Ends the wait.
  open func resolve(_ verdict: Verdict) -> Outcome { .state }
  /// Ends the wait, and the call.
  open func end(_ status: Status) -> Outcome { .state }
  /// Waits for the response.
  open func next() -> Outcome { .state }
  open func takeTicket() -> UInt64 { 0 }
  /// Called when somebody keeps the handle.
  open func becomeShared() {}

  /// The start as it is shown here; nil: it is not.
  open var request: Request? { nil }
  open var requestMetadata: Metadata? { request?.metadata }
  open func edit(_ change: (Request) -> Outcome) -> Outcome { .state }
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
