/// PenstockReady: interceptors that are ready to be registered.
///
/// Each is a class in a file of its own. Its callbacks use the same hop interface as those of a user's interceptor; the
/// ABI reads the options and fills the user's table. Nothing here does I/O or reads JSON, and no user code runs under a
/// lock. Objects may be shared by the threads of several runtimes.
import PenstockCall
import PenstockTransport
import PenstockWire

/// A ready-made interceptor: the object behind the `user_data` of a `penstock_interceptor`, here called a
/// table. Each table has its own reference to the object.
open class ReadyInterceptor {
  public final let name: StaticString
  public final let callbacks: Registration.Callbacks
  /// The kinds of calls that meet the interceptor: a mask of (1 << kind); 0: all.
  public final let kinds: UInt32
  public final let replayBytes: Int
  public final let generation = Process.generation

  init(
    _ name: StaticString, _ callbacks: Registration.Callbacks, kinds: UInt32 = 0, replayBytes: Int = 0
  ) {
    self.name = name
    self.callbacks = callbacks
    self.kinds = kinds
    self.replayBytes = replayBytes
  }

  /// Makes a table's reference to this object; `finalize` releases it.
  public final func retainedForTable() -> UnsafeMutableRawPointer {
    Unmanaged<ReadyInterceptor>.passRetained(self).toOpaque()
  }

  /// The finalizer of every table of this module; its address is also how such a table is recognised. It calls a
  /// function that nothing else calls, because the linker merges functions with the same code, which would give other
  /// finalizers the same address.
  public static var finalize: Finalizer { { pointer in if let pointer { letGo(pointer) } } }

  public static func from(_ pointer: UnsafeMutableRawPointer) -> ReadyInterceptor {
    Unmanaged<ReadyInterceptor>.fromOpaque(pointer).takeUnretainedValue()
  }
}

@inline(never)
private func letGo(_ table: UnsafeMutableRawPointer) {
  Unmanaged<ReadyInterceptor>.fromOpaque(table).release()
}

/// The hop and the object that a callback gets. Neither is NULL, because only the library's own chain calls these
/// callbacks.
@inline(__always)
func behind<T: AnyObject>(_ handle: OpaquePointer?, _ state: UnsafeMutableRawPointer?, _: T.Type) -> (Hop, T)
{
  (Hop.from(handle.unsafelyUnwrapped), this(state, T.self))
}

@inline(__always)
func this<T: AnyObject>(_ state: UnsafeMutableRawPointer?, _: T.Type) -> T {
  Unmanaged<T>.fromOpaque(state.unsafelyUnwrapped).takeUnretainedValue()
}

/// Stores `made` as the hop's state, in `create`; `forget` releases it, in `destroy`.
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
