import PenstockWire
import Synchronization

/// How long a call's attempts have waited for each `Lack`. The driving thread writes the times; any thread
/// may read them.
public struct CallWaits: ~Copyable {
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
    case .slot, .endpoint: slot.add(time)
    }
  }

  /// How long attempts have waited for `lack`, in nanoseconds. A wait that still goes on is counted up to the
  /// time `end`.
  public func waited(for lack: Lack, until end: UInt64) -> UInt64 {
    let began = since.value
    let open = waitsFor.load(ordering: .relaxed) == lack.rawValue && end > began ? end - began : 0
    switch lack {
    case .nothing: return 0
    case .name: return name.value &+ open
    case .connection: return connection.value &+ open
    case .slot, .endpoint: return slot.value &+ open
    }
  }
}

extension Call {
  /// Notes that the attempt waits for `lack` from now on. Only on the driving thread.
  public func waits(for lack: Lack) {
    guard phase == .live else { return }
    values.waits.waits(for: lack, now: loop.now)
    if trace != nil { note(.waiting, nil, .start, detail: Int(lack.rawValue)) }
  }
}
