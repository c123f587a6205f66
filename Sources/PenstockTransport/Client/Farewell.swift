import PenstockCall
import PenstockChannel
import PenstockWire

/// Closes a channel when its calls have ended, or when the time for that is over. Used on the driving thread only,
/// except for `init`.
final class Farewell: Timer {
  let channel: ClientChannel
  /// The time at which the calls that are left are ended; nil: they have no limit.
  private let latest: UInt64?
  /// How many calls of the channel had begun and not ended when they were counted last, less the calls that have ended
  /// since: at least so many are left. Calls that were redirected are counted down wherever they end.
  private var left = 0

  init(_ channel: ClientChannel, _ latest: UInt64?) {
    self.channel = channel
    self.latest = latest
    super.init()
  }

  private var runtime: Runtime { channel.loop.runtime }

  @inline(never) @_optimize(size)
  fileprivate func begin() {
    let live = channel.loop.live
    left = live.count(on: channel)
    guard left > 0 else { return end() }
    live.add(self)
    if let latest { runtime.arm(self, at: latest) }
  }

  /// A call of the channel has ended.
  @inline(never) @_optimize(size)
  func hasOneLess(_ live: LiveCalls) {
    left -= 1
    if left > 0 { return }
    // Calls that were made before the farewell may have begun since: counts again.
    left = live.count(on: channel)
    if left == 0 { end() }
  }

  @inline(never) @_optimize(size)
  override func fire() { end() }

  /// Closes the channel. `close` only posts the work, because this function may run in the middle of a call's end.
  @inline(never) @_optimize(size)
  private func end() {
    channel.loop.live.remove(self)
    runtime.disarm(self)
    _ = channel.close()
  }

  final class Begin: InboxItem {
    private let farewell: Farewell

    init(_ farewell: Farewell) { self.farewell = farewell }

    override func run() { farewell.begin() }
  }
}
