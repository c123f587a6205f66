public import PenstockCall
import PenstockWire

/// Asynchronous style: an ordinary interceptor's callbacks that pause at each event and give out a completion.
///
/// Nothing here is known to the call: it is written on callbacks, verdicts and tickets alone.
public struct AsyncCallbacks {
  public typealias Handle = OpaquePointer?
  public typealias Pointer = UnsafeMutableRawPointer?
  public typealias Create =
    @convention(c) (Pointer, UnsafePointer<CChar>?, Int32, UnsafeMutablePointer<Pointer>?) -> Int32
  public typealias Destroy = @convention(c) (Pointer) -> Void
  /// Of metadata, of a status.
  public typealias Shown = @convention(c) (Pointer, Handle, Handle) -> Void
  public typealias Bytes = @convention(c) (Pointer, UnsafeRawPointer?, Int, Handle) -> Void
  public typealias Signal = @convention(c) (Pointer, Handle) -> Void

  public var create: Create?
  public var destroy: Destroy?
  public var onStart: Shown?
  public var onRequest: Bytes?
  public var onHalfClose: Signal?
  public var onHeaders: Shown?
  public var onResponse: Bytes?
  public var onStatus: Shown?
  public var onCancel: Signal?

  public init() {}
}

/// The user's callbacks and data, for as long as the registration lives.
private final class AsyncStyle {
  let callbacks: AsyncCallbacks
  let userData: UserData

  init(_ callbacks: AsyncCallbacks, _ userData: UserData) {
    self.callbacks = callbacks
    self.userData = userData
  }
}

/// What the ordinary callbacks get as their state: one for the registration, and where there is a `create`, one for each
/// hop. The C side's reference to it is taken in `table` and in `create`, and given back in the finalizer and in
/// `destroy`.
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

  /// What to register: callbacks, user data with a reference of its own, and what gives it back.
  @inline(never) @_optimize(size)
  public static func table(_ callbacks: AsyncCallbacks, _ userData: UserData)
    -> (Registration.Callbacks, UnsafeMutableRawPointer, Finalizer)
  {
    var table = Registration.Callbacks()
    if callbacks.create != nil { table.create = create }
    if callbacks.create != nil || callbacks.destroy != nil { table.destroy = destroy }
    if callbacks.onStart != nil { table.onStart = onStart }
    if callbacks.onRequest != nil { table.onSend = onRequest }
    if callbacks.onHalfClose != nil { table.onHalfClose = onHalfClose }
    if callbacks.onHeaders != nil { table.onHeaders = onHeaders }
    if callbacks.onResponse != nil { table.onReceive = onResponse }
    if callbacks.onStatus != nil { table.onStatus = onStatus }
    if callbacks.onCancel != nil { table.onCancel = onCancel }
    let state = AsyncState(AsyncStyle(callbacks, userData), userData.pointer).toOpaque()
    return (table, state, { if let state = $0 { Unmanaged<AsyncState>.fromOpaque(state).release() } })
  }

  // MARK: - The ordinary callbacks

  private static let create: HopCreate = { handle, userData, place in
    guard let handle, let place, let shared = AsyncState.from(userData) else { return Verdict.skip.rawValue }
    let hop = Hop.from(handle)
    var pointer: UnsafeMutableRawPointer?
    let method = hop.call.request.path.view.baseAddress?.assumingMemoryBound(to: CChar.self)
    let answer =
      shared.style.callbacks.create?(shared.pointer, method, hop.call.request.kind.rawValue, &pointer)
      ?? Verdict.next.rawValue
    if answer == Verdict.next.rawValue { place.pointee = AsyncState(shared.style, pointer).toOpaque() }
    return answer
  }

  private static let destroy: HopDestroy = { _, state in
    guard let state, let mine = AsyncState.from(state) else { return }
    mine.style.callbacks.destroy?(mine.pointer)
    if mine.style.callbacks.create != nil { Unmanaged<AsyncState>.fromOpaque(state).release() }
  }

  private static let onStart: HopCallback = { handle, state in
    show(handle, state, .start) { mine, hop, completion in
      mine.style.callbacks.onStart?(mine.pointer, hop.metadata.map { borrowed($0) }, completion)
    }
  }

  private static let onHeaders: HopCallback = { handle, state in
    show(handle, state, .headers) { mine, hop, completion in
      mine.style.callbacks.onHeaders?(mine.pointer, hop.metadata.map { borrowed($0) }, completion)
    }
  }

  private static let onRequest: HopCallback = { handle, state in
    show(handle, state, .send) { mine, hop, completion in
      let message = hop.message
      mine.style.callbacks.onRequest?(mine.pointer, message?.start, message?.count ?? 0, completion)
    }
  }

  private static let onResponse: HopCallback = { handle, state in
    show(handle, state, .receive) { mine, hop, completion in
      let message = hop.message
      mine.style.callbacks.onResponse?(mine.pointer, message?.start, message?.count ?? 0, completion)
    }
  }

  private static let onHalfClose: HopCallback = { handle, state in
    show(handle, state, .halfClose) { mine, _, completion in
      mine.style.callbacks.onHalfClose?(mine.pointer, completion)
    }
  }

  private static let onStatus: HopCallback = { handle, state in
    show(handle, state, .status) { mine, hop, completion in
      mine.style.callbacks.onStatus?(mine.pointer, hop.status.map { borrowed($0) }, completion)
    }
  }

  private static let onCancel: HopCallback = { handle, state in
    guard let handle, let mine = AsyncState.from(state) else { return 0 }
    let status = Hop.from(handle).status
    mine.style.callbacks.onCancel?(mine.pointer, status.map { borrowed($0) })
    withExtendedLifetime(status) {}
    return Verdict.next.rawValue
  }

  /// Gives out the event with a completion, which the callee owns, and says what becomes of it.
  private static func show(
    _ handle: OpaquePointer?, _ state: UnsafeMutableRawPointer?, _ kind: EventKind,
    _ body: (AsyncState, Hop, OpaquePointer) -> Void
  ) -> Int32 {
    guard let handle, let mine = from(state) else { return Verdict.next.rawValue }
    let hop = Hop.from(handle)
    let completion = Completion(hop, kind)
    body(mine, hop, OpaquePointer(Unmanaged.passRetained(completion).toOpaque()))
    return completion.settle()
  }
}

/// A handle that lives as long as the completion keeps the object.
private func borrowed<T: AnyObject>(_ object: T) -> OpaquePointer {
  OpaquePointer(Unmanaged.passUnretained(object).toOpaque())
}

extension Message {
  /// A pointer even where there are no bytes.
  fileprivate var start: UnsafeRawPointer {
    view.baseAddress ?? UnsafeRawPointer(("" as StaticString).utf8Start)
  }
}
