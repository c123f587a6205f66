public import PenstockCall
import PenstockWire

/// The user's callbacks and user data. They live as long as the registration.
private final class AsyncStyle {
  let callbacks: AsyncCallbacks
  let userData: UserData

  init(_ callbacks: AsyncCallbacks, _ userData: UserData) {
    self.callbacks = callbacks
    self.userData = userData
  }
}

/// The object that the state pointer of the ordinary callbacks points to. The registration has one such
/// object. If the user has a `create` callback, each hop has a further object. The state pointer of the
/// registration holds a reference, which the registration's finalizer releases. The state pointer of a hop
/// holds a reference, which `destroy` releases.
public final class AsyncState {
  private let style: AsyncStyle
  private let pointer: UnsafeMutableRawPointer?

  private init(_ style: AsyncStyle, _ pointer: UnsafeMutableRawPointer?) {
    self.style = style
    self.pointer = pointer
  }

  private static func from(_ state: UnsafeMutableRawPointer?) -> AsyncState? {
    state.map { Unmanaged<AsyncState>.fromOpaque($0).takeUnretainedValue() }
  }

  private func toOpaque() -> UnsafeMutableRawPointer { Unmanaged.passRetained(self).toOpaque() }

  /// Returns the parts of a registration: the callbacks, the state pointer, which holds a reference, and the
  /// finalizer that releases this reference.
  public static func table(_ callbacks: AsyncCallbacks, _ userData: UserData)
    -> (Registration.Callbacks, UnsafeMutableRawPointer, Finalizer)
  {
    var table = Registration.Callbacks()
    if callbacks.create != nil { table.create = create }
    table.destroy = destroy
    if callbacks.onStart != nil { table.onStart = { AsyncState.show($0, $1, .start) { $0.onStart } } }
    if callbacks.onSend != nil { table.onSend = { AsyncState.show($0, $1, .send) { $0.onSend } } }
    if callbacks.onHalfClose != nil {
      table.onHalfClose = { AsyncState.show($0, $1, .halfClose) { $0.onHalfClose } }
    }
    if callbacks.onHeaders != nil { table.onHeaders = { AsyncState.show($0, $1, .headers) { $0.onHeaders } } }
    if callbacks.onReceive != nil { table.onReceive = { AsyncState.show($0, $1, .receive) { $0.onReceive } } }
    if callbacks.onStatus != nil { table.onStatus = { AsyncState.show($0, $1, .status) { $0.onStatus } } }
    if callbacks.onCancel != nil { table.onCancel = { AsyncState.tell($0, $1) { $0.onCancel } } }
    if callbacks.onDemand != nil { table.onDemand = { AsyncState.tell($0, $1) { $0.onDemand } } }
    if callbacks.onSent != nil { table.onSent = { AsyncState.tell($0, $1) { $0.onSent } } }
    if callbacks.onPick != nil { table.onPick = { AsyncState.tell($0, $1) { $0.onPick } } }
    let state = AsyncState(AsyncStyle(callbacks, userData), userData.pointer).toOpaque()
    return (table, state, { if let state = $0 { Unmanaged<AsyncState>.fromOpaque(state).release() } })
  }

  // MARK: - The ordinary callbacks

  private static let create: HopCreate = { handle, userData, out in
    guard let out, let shared = AsyncState.from(userData) else { return Verdict.skip.rawValue }
    var pointer: UnsafeMutableRawPointer?
    let answer = shared.style.callbacks.create?(handle, shared.pointer, &pointer) ?? Verdict.next.rawValue
    if answer == Verdict.next.rawValue { out.pointee = AsyncState(shared.style, pointer).toOpaque() }
    return answer
  }

  /// Every table of this style has this callback, and is recognised by it. Its code differs from that of all other
  /// functions, so the linker does not merge it with another one.
  public static let destroy: HopDestroy = { handle, state in
    guard let state, let mine = AsyncState.from(state) else { return }
    mine.style.callbacks.destroy?(handle, mine.pointer)
    if mine.style.callbacks.create != nil { Unmanaged<AsyncState>.fromOpaque(state).release() }
  }

  /// Calls the user's callback for a signal or a picked endpoint, and returns what it returns.
  fileprivate static func tell(
    _ handle: OpaquePointer?, _ state: UnsafeMutableRawPointer?, _ callback: (AsyncCallbacks) -> HopCallback?
  ) -> Int32 {
    guard let mine = from(state) else { return Verdict.next.rawValue }
    return callback(mine.style.callbacks)?(handle, mine.pointer) ?? Verdict.next.rawValue
  }

  /// Calls the user's callback with a handle at the event, which the user has to release. Returns the
  /// verdict.
  fileprivate static func show(
    _ handle: OpaquePointer?, _ state: UnsafeMutableRawPointer?, _ kind: EventKind,
    _ callback: (AsyncCallbacks) -> AsyncCallbacks.Shown?
  ) -> Int32 {
    guard let handle, let mine = from(state) else { return Verdict.next.rawValue }
    var waiting = WaitingHop(Hop.from(handle), kind)
    callback(mine.style.callbacks)?(OpaquePointer(Unmanaged.passRetained(waiting).toOpaque()), mine.pointer)
    // If the user has kept the handle, any thread may use the hop from now on, even after the event. If a thread
    // has ended the call by it, the verdict does not count.
    if !isKnownUniquelyReferenced(&waiting) || waiting.hop.isEnding { waiting.becomeShared() }
    return waiting.settle()
  }
}
