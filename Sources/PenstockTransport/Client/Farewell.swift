import PenstockCall
import PenstockChannel
import PenstockWire

/// Closes a channel when its calls have ended, or when the time for that is over. Used on the driving thread only,
/// except for `init`.
final class Farewell: Timer {
  let channel: ClientChannel
  /// The time at which the channel closes even if calls are left; nil: there is no such time.
  private let latest: UInt64?
  /// The number of the channel's live calls at the last count, less the calls that have ended since. Each
  /// redirected call of the loop that ends is subtracted, whichever channel it ran on: so more calls than
  /// this may be left.
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

  /// Called when a call of the channel, or a redirected call, has ended.
  @inline(never) @_optimize(size)
  func hasOneLess(_ live: LiveCalls) {
    left -= 1
    if left > 0 { return }
    // Counts again: calls that were made before the farewell may have begun since, and redirected calls of
    // other channels were subtracted, too.
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
