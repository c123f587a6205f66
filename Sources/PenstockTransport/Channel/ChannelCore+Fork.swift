import PenstockCall
import PenstockChannel
import PenstockLink
import PenstockLoop

/// The channel in a child of fork.
extension ChannelCore {
  /// Called in a forked child. Drops the parent's connections, and makes the channel IDLE: the next call connects.
  func becomeChild(_: inout InheritedCalls) {
    closeInChild()
    destination.tls?.forgetSessions()
    names?.becomeChild()
    runtime.disarm(self)
    idleTimer.map { runtime.disarm($0) }
    outlierTimer.map { runtime.disarm($0) }
    events.removeAll()
    for subchannel in endpoints {
      subchannel.endpointIndex = -1
      removed.append(subchannel)
    }
    endpoints = []
    balancer = ChannelCore.newBalancer(destination, runtime, picks: picker != nil)
    pick = balancer.pick
    connectivity.becomeChild()
  }

  /// Ends the calls on the parent's connections, whose descriptors are closed in this process: peers get no bytes.
  func endInherited() {
    names?.endInherited()
    let others = removed
    removed = []
    for subchannel in others { subchannel.close() }
  }

  func closeInChild() {
    for subchannel in endpoints { subchannel.closeInChild() }
    for subchannel in removed { subchannel.closeInChild() }
  }
}
