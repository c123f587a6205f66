import PenstockCall
import PenstockTransport
import PenstockWire
import Synchronization
import PenstockLoop
import PenstockLink

/// Finds the store that has made a request for a token, by the request's number, on any thread.
///
/// The number of a request is (the number of its store) << 32 | (the store's count of requests). Stores are
/// numbered from 1. No number is used twice in a process and its forked children.
public final class TokenRequests: @unchecked Sendable {
  private static let processSlot = 8
  /// The number of the newest store, in this process or its ancestors. It is not in the memory that a fork
  /// wipes, so that a child continues the numbers.
  private static let newest = Atomic<UInt64>(0)

  private let lock = Lock()
  /// All stores that may have an open request. There are few, so an array is enough.
  private var stores: [TokenStore] = []

  /// The only object of this class in the process; a forked child makes its own.
  private static var shared: TokenRequests {
    Process.withLock { () -> TokenRequests in
      let slot = Process.slot(processSlot)
      if let raw = UnsafeRawPointer(bitPattern: slot.pointee) {
        return Unmanaged<TokenRequests>.fromOpaque(raw).takeUnretainedValue()
      }
      let fresh = TokenRequests()
      slot.pointee = UInt(bitPattern: Unmanaged.passRetained(fresh).toOpaque())
      return fresh
    }
  }

  private init() {}

  static func newNumber() -> UInt64 {
    newest.wrappingAdd(1, ordering: .relaxed).newValue & UInt64(UInt32.max)
  }

  static func add(_ store: TokenStore) {
    let table = shared
    table.lock.withLock { table.stores.append(store) }
  }

  /// Removes a store that is about to be freed, because its interceptor exists no more.
  static func remove(_ store: TokenStore) {
    let table = shared
    table.lock.withLock { table.stores.drop(store) }
  }

  private static func store(of request: UInt64) -> TokenStore? {
    let table = shared
    return table.lock.withLock { table.stores.first { $0.number == request >> 32 } }
  }

  // MARK: - The answers

  /// Answers the request numbered `request` with a token. `lifetime` is in nanoseconds; nil: the token does
  /// not expire.
  public static func complete(_ request: UInt64, _ token: ByteView, lifetime: UInt64?) -> Outcome {
    guard request != 0, !token.isEmpty, HeaderRules.isValidASCIIValue(token) else { return .invalidArgument }
    guard let store = store(of: request) else { return .gone }
    guard let text = ByteBuffer(copying: store.options.prefix.view), text.append(token) else {
      return .noMemory
    }
    return store.complete(request & UInt64(UInt32.max), text, lifetime)
  }

  public static func fail(_ request: UInt64, _ status: Status) -> Outcome {
    guard request != 0 else { return .invalidArgument }
    return store(of: request)?.fail(request & UInt64(UInt32.max), status) ?? .gone
  }

  /// Seconds since 1970, by the clock of the call that needs the token; nil: the request is open no more.
  static func seconds(of request: UInt64) -> UInt64? {
    store(of: request)?.wallClock.map { $0 / 1_000_000_000 }
  }

  /// Answers the request for a lack of memory.
  static func failForMemory(_ request: UInt64) {
    _ = fail(request, Status(.resourceExhausted, "no memory for the token"))
  }
}
