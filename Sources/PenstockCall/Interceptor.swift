import PenstockWire

public typealias HopCallback = @convention(c) (OpaquePointer?, UnsafeMutableRawPointer?) -> Int32
public typealias HopCreate =
  @convention(c) (
    OpaquePointer?, UnsafeMutableRawPointer?, UnsafeMutablePointer<UnsafeMutableRawPointer?>?
  ) -> Int32
public typealias HopDestroy = @convention(c) (OpaquePointer?, UnsafeMutableRawPointer?) -> Void
public typealias Finalizer = @convention(c) (UnsafeMutableRawPointer?) -> Void

/// What a callback may return; the values are the ABI's.
public enum Verdict: Int32, Sendable {
  case next = 0
  case pause = 1
  case hold = 2
  case drop = 3
  case take = 4
  case restart = 5
  case skip = 6
}

/// A user's pointer and what frees it: the finalizer runs exactly once, when the last reference goes.
public final class UserData {
  public let pointer: UnsafeMutableRawPointer?
  private let finalizer: Finalizer?

  public init(_ pointer: UnsafeMutableRawPointer?, _ finalizer: Finalizer?) {
    self.pointer = pointer
    self.finalizer = finalizer
  }

  deinit { finalizer?(pointer) }
}

/// One registered interceptor: its callbacks, what it applies to, and its user data. Immutable, shared by
/// every snapshot and call that has it; its end is the end of its user data.
public final class Registration {
  public struct Callbacks {
    public var create: HopCreate?
    public var destroy: HopDestroy?
    public var onStart: HopCallback?
    public var onSend: HopCallback?
    public var onHalfClose: HopCallback?
    public var onHeaders: HopCallback?
    public var onReceive: HopCallback?
    public var onStatus: HopCallback?
    public var onCancel: HopCallback?
    public var onDemand: HopCallback?
    public var onSent: HopCallback?

    public init() {}
  }

  public static let defaultHoldBytes = 65536

  /// Process-wide, in the order of registration; never 0.
  public let id: UInt64
  public let name: ByteBuffer
  public let filter: MethodFilter
  /// A mask of (1 << kind).
  public let kinds: UInt32
  public let level: Level
  /// Its hop at the bytes level is made anew with each attempt.
  public let isPerAttempt: Bool
  public let holdBytes: Int
  /// How many message bytes are recorded for RESTART; 0: no recording.
  public let replayBytes: Int
  public let maxRestarts: Int
  /// nil: the driving thread.
  public let outboundExecutor: (any Executor)?
  public let inboundExecutor: (any Executor)?
  let hasExecutors: Bool
  public let userData: UserData
  public let callbacks: Callbacks

  public init(
    id: UInt64, name: ByteBuffer, filter: MethodFilter, kinds: UInt32, level: Level = .bytes,
    isPerAttempt: Bool = false, holdBytes: Int, userData: UserData, callbacks: Callbacks,
    replayBytes: Int = 0, maxRestarts: Int = 1,
    outboundExecutor: (any Executor)? = nil, inboundExecutor: (any Executor)? = nil
  ) {
    self.id = id
    self.name = name
    self.filter = filter
    self.kinds = kinds == 0 ? 0xf : kinds
    self.level = level
    self.isPerAttempt = isPerAttempt
    self.holdBytes = holdBytes == 0 ? Registration.defaultHoldBytes : holdBytes
    self.userData = userData
    self.callbacks = callbacks
    self.replayBytes = replayBytes
    self.maxRestarts = maxRestarts
    self.outboundExecutor = outboundExecutor
    self.inboundExecutor = inboundExecutor
    hasExecutors = outboundExecutor != nil || inboundExecutor != nil
  }

  public var matchesEverything: Bool { filter.matchesEverything && kinds & 0xf == 0xf }

  public func matches(_ path: ByteView, _ kind: CallKind) -> Bool {
    kinds & (1 << UInt32(kind.rawValue)) != 0 && filter.matches(path)
  }
}

/// Patterns separated by commas: a whole path, or a beginning followed by one star.
public struct MethodFilter {
  public let text: ByteBuffer?

  /// No text: everything.
  public init() { text = nil }

  /// nil: a pattern that can match nothing, or no memory.
  public init?(_ pattern: ByteView) {
    guard let copied = ByteBuffer(copying: pattern) else { return nil }
    text = copied
    var valid = true
    forEachPattern { one in
      let star = one.firstIndex(of: 0x2a)
      if one.isEmpty || (one[0] != 0x2f && one[0] != 0x2a) || (star != nil && star != one.count - 1) {
        valid = false
      }
      return true
    }
    guard valid else { return nil }
  }

  public var matchesEverything: Bool {
    guard let text else { return true }
    return text.count == 1 && text.view[0] == 0x2a
  }

  public func matches(_ path: ByteView) -> Bool {
    guard text != nil else { return true }
    var found = false
    forEachPattern { one in
      if one[one.count - 1] == 0x2a {
        found =
          path.count >= one.count - 1
          && bytesEqual(
            ByteView(rebasing: path[0..<one.count - 1]), ByteView(rebasing: one[0..<one.count - 1]))
      } else {
        found = bytesEqual(path, one)
      }
      return !found
    }
    return found
  }

  /// Trims spaces; the body returns false to stop.
  private func forEachPattern(_ body: (ByteView) -> Bool) {
    guard let text else { return }
    let view = text.view
    var start = 0
    while start <= view.count {
      var end = start
      while end < view.count, view[end] != 0x2c { end += 1 }
      var first = start
      var last = end
      while first < last, view[first] == 0x20 { first += 1 }
      while last > first, view[last - 1] == 0x20 { last -= 1 }
      guard body(ByteView(rebasing: view[first..<last])) else { return }
      start = end + 1
    }
  }
}
