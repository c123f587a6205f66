import PenstockCall
import PenstockTransport
import PenstockWire
import Synchronization

/// The requests for tokens by number, for any thread.
///
/// A number is that of a store << 32 | the store's own count of requests. Stores are numbered from 1, and no number comes
/// again within the process, nor in a child that a fork makes of it.
public final class TokenRequests: @unchecked Sendable {
  private static let processSlot = 8
  /// The newest of this process or an ancestor: outside of the memory that a fork wipes, so that a child counts on.
  private static let newest = Atomic<UInt64>(0)

  private let lock = Lock()
  /// Those whose sources may be asked: few.
  private var stores: [TokenStore] = []

  /// The table of this process: a forked child has its own.
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

  /// The source is asked no more; the store may go.
  static func remove(_ store: TokenStore) {
    let table = shared
    table.lock.withLock { table.stores.drop(store) }
  }

  private static func store(of request: UInt64) -> TokenStore? {
    let table = shared
    return table.lock.withLock { table.stores.first { $0.number == request >> 32 } }
  }

  // MARK: - The answers

  /// `lifetime` in nanoseconds; nil: without end.
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
}
