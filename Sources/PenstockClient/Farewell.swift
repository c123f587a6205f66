import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLoop

/// Closes a channel gracefully: when its calls have ended, or at the time `latest`. Only the driving thread
/// uses it, except for `init`.
final class Farewell: Timer {
  let channel: ClientChannel
  /// The monotonic time in ns at which the channel closes even if calls are left; nil: no limit.
  private let latest: UInt64?
  /// The number of the channel's live calls at the last count, minus the calls that have ended since then. A
  /// redirected call of the loop is subtracted even if it ran on another channel, so the channel may have
  /// more live calls than `left`.
  private var left = 0

  init(_ channel: ClientChannel, _ latest: UInt64?) {
    self.channel = channel
    self.latest = latest
    super.init()
  }

  private var runtime: Runtime { channel.loop.runtime }

  fileprivate func begin() {
    let live = channel.loop.live
    left = live.count(on: channel)
    guard left > 0 else { return end() }
    live.add(self)
    if let latest { runtime.arm(self, at: latest) }
  }

  /// Called when a call of the channel, or any redirected call of the loop, has ended.
  func hasOneLess(_ live: LiveCalls) {
    left -= 1
    if left > 0 { return }
    // The calls are counted again. Calls that were made before `begin` may have started since then, and
    // redirected calls of other channels were subtracted, too.
    left = live.count(on: channel)
    if left == 0 { end() }
  }

  override func fire() { end() }

  /// Closes the channel. A call may be in the middle of its end now; this is safe, because `close` only posts
  /// the work to the loop.
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
