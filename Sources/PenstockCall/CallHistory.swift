import PenstockWire
import Synchronization

/// The facts about a call that few calls have: the connections of its earlier attempts, and for how long its attempts
/// have waited for what. The driving thread changes it; the times may be read on any thread.
public final class CallHistory {
  /// A call that runs may be asked for them on another thread, so they stay until it ends.
  var connections: [ConnectionFacts] = []
  private let waitsFor = Atomic<UInt8>(Lack.nothing.rawValue)
  /// The time at which the present wait began.
  private let since = Measure()
  private let name = Measure()
  private let connection = Measure()
  private let slot = Measure()

  func waits(for lack: Lack, now: UInt64) {
    let old = Lack(rawValue: waitsFor.load(ordering: .relaxed)) ?? .nothing
    let began = since.value
    if now > began { add(Int(clamping: now - began), to: old) }
    since.set(now)
    waitsFor.store(lack.rawValue, ordering: .relaxed)
  }

  private func add(_ time: Int, to lack: Lack) {
    switch lack {
    case .nothing: break
    case .name: name.add(time)
    case .connection: connection.add(time)
    case .slot: slot.add(time)
    }
  }

  /// For how long attempts have waited for this, in nanoseconds, with a wait that goes on at `end`.
  public func waited(for lack: Lack, until end: UInt64) -> UInt64 {
    let began = since.value
    let open = waitsFor.load(ordering: .relaxed) == lack.rawValue && end > began ? end - began : 0
    switch lack {
    case .nothing: return 0
    case .name: return name.value &+ open
    case .connection: return connection.value &+ open
    case .slot: return slot.value &+ open
    }
  }
}

extension Call {
  /// The rare facts of the call; nil: there are none. Any thread.
  var history: CallHistory? {
    rareFacts.load(ordering: .acquiring).map { Unmanaged<CallHistory>.fromOpaque($0).takeUnretainedValue() }
  }

  @inline(never) @_optimize(size)
  private func madeHistory() -> CallHistory {
    if let history { return history }
    let made = CallHistory()
    rareFacts.store(Unmanaged.passRetained(made).toOpaque(), ordering: .releasing)
    return made
  }

  /// Keeps the connection of an earlier attempt.
  @inline(never) @_optimize(size)
  func keepPast(_ old: Unmanaged<ConnectionFacts>) {
    madeHistory().connections.append(old.takeRetainedValue())
  }

  /// The attempt waits for this from now on. Driving thread only.
  @inline(never) @_optimize(size)
  public func waits(for lack: Lack) {
    guard phase == .live else { return }
    madeHistory().waits(for: lack, now: loop.now)
    if trace != nil { note(.waiting, detail: Int(lack.rawValue)) }
  }
}
