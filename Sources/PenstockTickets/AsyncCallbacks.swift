public import PenstockCall

/// The asynchronous style of interceptors: an ordinary interceptor whose callbacks pause or hold each event, and
/// give the user a handle of the hop at that event. Signals and `onPick` are as in an ordinary interceptor.
///
/// This style needs no code in PenstockCall, because it uses callbacks, verdicts and tickets like any
/// interceptor.
public struct AsyncCallbacks {
  /// A user's callback for an event. Its arguments are a handle of the hop, which the user has to release,
  /// and the state that the user's `create` has set.
  public typealias Shown = @convention(c) (OpaquePointer?, UnsafeMutableRawPointer?) -> Void

  public var create: HopCreate?
  public var destroy: HopDestroy?
  public var onStart: Shown?
  public var onSend: Shown?
  public var onHalfClose: Shown?
  public var onHeaders: Shown?
  public var onReceive: Shown?
  public var onStatus: Shown?
  public var onCancel: HopCallback?
  public var onDemand: HopCallback?
  public var onSent: HopCallback?
  public var onPick: HopCallback?

  public init() {}
}
