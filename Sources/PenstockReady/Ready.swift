/// PenstockReady: interceptors that are ready to be registered.
///
/// Each interceptor is a class in its own file. Its callbacks use the same hop functions as those of a user's
/// interceptor. The ABI layer reads the options and fills in the user's table (penstock_interceptor). Nothing
/// in this module reads JSON or does I/O, but for `TokenFile`, and `Telemetry`, which makes calls; and no user code runs while a
/// lock is held. Threads of several runtimes may share an object.
import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockHTTP

/// A ready-made interceptor: the object behind the `user_data` of a `penstock_interceptor` (a "table"). Each
/// table has its own reference to the object.
open class ReadyInterceptor {
  public final let name: StaticString
  public final let callbacks: Registration.Callbacks
  /// The kinds of calls for which the interceptor gets hops, as a mask of (1 << kind); 0: all kinds.
  public final let kinds: UInt32
  public final let replayBytes: Int
  public final let level: Level
  public final let isPerAttempt: Bool
  public final let generation = Process.generation

  init(
    _ name: StaticString, _ callbacks: Registration.Callbacks, kinds: UInt32 = 0, replayBytes: Int = 0,
    level: Level = .bytes, isPerAttempt: Bool = false
  ) {
    self.name = name
    self.callbacks = callbacks
    self.kinds = kinds
    self.replayBytes = replayBytes
    self.level = level
    self.isPerAttempt = isPerAttempt
  }

  /// The pointer to this object in a table.
  public final func toOpaque() -> UnsafeMutableRawPointer { Unmanaged.passUnretained(self).toOpaque() }

  /// Adds the reference that a table has to this object; `finalize` releases it.
  public final func retainForTable() { _ = Unmanaged.passUnretained(self).retain() }

  /// The finalizer in every table that this module fills in; a table is recognised by the finalizer's
  /// address. It calls a function that nothing else calls: the linker merges functions with the same code, so
  /// another finalizer could get the same address otherwise.
  public static var finalize: Finalizer { { pointer in if let pointer { letGo(pointer) } } }

  public static func from(_ pointer: UnsafeMutableRawPointer) -> ReadyInterceptor {
    Unmanaged<ReadyInterceptor>.fromOpaque(pointer).takeUnretainedValue()
  }
}

private func letGo(_ table: UnsafeMutableRawPointer) {
  Unmanaged<ReadyInterceptor>.fromOpaque(table).release()
}

/// Turns the pointers that a callback gets into the hop and its state. Neither pointer is NULL, because only
/// the library's own chain calls these callbacks.
@inline(__always)
func behind<T: AnyObject>(_ handle: OpaquePointer?, _ state: UnsafeMutableRawPointer?, _: T.Type) -> (Hop, T)
{
  (Hop.from(handle.unsafelyUnwrapped), this(state, T.self))
}

@inline(__always)
func this<T: AnyObject>(_ state: UnsafeMutableRawPointer?, _: T.Type) -> T {
  Unmanaged<T>.fromOpaque(state.unsafelyUnwrapped).takeUnretainedValue()
}

/// Stores `made` as the hop's state. Called in `create`; `forget` releases the state in `destroy`.
func keep<T: AnyObject>(_ made: T, _ out: UnsafeMutablePointer<UnsafeMutableRawPointer?>?) -> Int32 {
  out?.pointee = Unmanaged.passRetained(made).toOpaque()
  return next
}

func forget<T: AnyObject>(_ state: UnsafeMutableRawPointer?, _: T.Type) {
  if let state { Unmanaged<T>.fromOpaque(state).release() }
}

var next: Int32 { Verdict.next.rawValue }
var pause: Int32 { Verdict.pause.rawValue }
var hold: Int32 { Verdict.hold.rawValue }
