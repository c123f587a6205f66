import PenstockCall
import PenstockWire
import PenstockLink
import PenstockTransport

// A side call is a call that a hop makes while it handles another call, its parent. A redirect is a hop's
// order to send its call to another channel.

/// The links between a call and its side calls, which its hops have made. Only the driving thread uses them,
/// except that another thread may set `parent` before the call opens.
struct SideCallLinks {
  fileprivate(set) var parent: ClientCall?
  fileprivate var sides: [ClientCall] = []
  /// The index of this call in its parent's `sides`; -1: the call is not in that list.
  fileprivate var slot = -1
  fileprivate var hasEnded = false
}

extension ClientCall {
  public struct SideFlags: OptionSet, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// The side call goes through the whole chain, which includes the interceptor of the hop that makes it.
    public static let fromTop = SideFlags(rawValue: 1)
    /// The side call ignores the deadline and the end of its parent.
    public static let detached = SideFlags(rawValue: 2)
    public static let all: SideFlags = [.fromTop, .detached]
  }

  /// Makes a side call for the hop's call, on the same channel. Any thread that has the hop. `.gone`: the
  /// hop's call has ended.
  public static func makeSide(
    of hop: Hop, _ path: ByteView, _ kind: CallKind, _ flags: SideFlags, _ options: CallOptions?,
    _ callbacks: CallCallbacks?
  ) -> (Outcome, Unmanaged<ClientCall>?) {
    if hop.hasEnded { return (.gone, nil) }
    guard let (parent, line) = hop.call.item.live(hop.call) else { return (.gone, nil) }
    let channel = parent.channel
    let (found, named) = find(path, channel)
    guard let named else { return (found, nil) }
    let side =
      flags.contains(.fromTop)
      ? channel.chains.chain(path, kind, of: channel.runtime, with: options?.interceptors)
      : channel.chains.sideChain(
        path, kind, of: channel.runtime, below: hop.index, in: line, with: options?.interceptors)
    let (outcome, made) = make(channel, named, kind, options, callbacks, side)
    // A hop at the level of bytes is below the codec, so its side call gets no codec from the channel, only
    // the codec of `options`.
    made?._withUnsafeGuaranteedRef { made in
      if flags.isDisjoint(with: .fromTop), hop.level == .bytes { made.call.codec = options?.codec }
      if !flags.contains(.detached) { made.sideLinks.parent = parent }
      if hop.call.trace != nil {
        hop.call.note(.sideCall, hop, detail: Int(truncatingIfNeeded: made.call.id))
      }
    }
    return (outcome, made)
  }

  /// Called before a side call opens. From now on it ends when its parent ends, and at the parent's deadline
  /// at the latest.
  func attachToParent() {
    guard let parent = sideLinks.parent else { return }
    if parent.sideLinks.hasEnded {
      call.perform(.endLocally(ClientCall.orphaned))
      return
    }
    sideLinks.slot = parent.sideLinks.sides.count
    parent.sideLinks.sides.append(self)
    call.limitDeadline(parent.call.request.deadline)
  }

  /// Called when the call has ended. Removes the call from its parent's list, and ends its own side calls.
  func endSideCalls() {
    sideLinks.hasEnded = true
    if let parent = sideLinks.parent {
      sideLinks.parent = nil
      parent.remove(self)
    }
    if sideLinks.sides.isEmpty { return }
    let sides = sideLinks.sides
    sideLinks.sides = []
    for side in sides {
      side.sideLinks.slot = -1
      side.call.submit(.endLocally(ClientCall.orphaned))
    }
  }

  private func remove(_ side: ClientCall) {
    let slot = side.sideLinks.slot
    guard slot >= 0, slot < sideLinks.sides.count else { return }
    let last = sideLinks.sides.removeLast()
    if slot < sideLinks.sides.count {
      sideLinks.sides[slot] = last
      last.sideLinks.slot = slot
    }
    side.sideLinks.slot = -1
  }

  private static var orphaned: Status { Status(.cancelled, "the call for which it was made has ended") }
}

extension ClientChannel {
  /// Redirects the hop's call to this channel: the hop's start event, or the recorded start that a RESTART
  /// sends again, goes to this channel. Called in a callback of the hop.
  public func take(over hop: Hop) -> Outcome {
    guard let (owner, _) = hop.call.item.live(hop.call) else { return .gone }
    guard owner.channel.runtime === runtime else { return .invalidArgument }
    if !isOpen { return .closed }
    if owner.channel.loop !== loop { return hop.refuse(.otherLoop) }
    let outcome = hop.editStart {
      $0.setRoute(ClientRoute(self))
      return .ok
    }
    if outcome == .ok, hop.call.trace != nil { hop.call.note(.redirected, hop) }
    return outcome == .ok && !owner.keep(self) ? .gone : outcome
  }
}

extension ClientCall {
  /// The channel that the call runs on now, after any redirects. Only on the driving thread, and before the
  /// call ends.
  var lane: ClientChannel {
    // The cast is safe, because `ClientRoute` is the only subclass of `CallRoute`.
    call.request.route.map { unsafeDowncast($0, to: ClientRoute.self).channel } ?? channel
  }

  /// Whether a hop has redirected the call to another channel at least once. Only on the driving thread.
  var wasRedirected: Bool { call.request.route != nil }

  /// Whether the call was made on the channel `other`, or runs on it after a redirect. Only on the driving
  /// thread, and before the call ends.
  func isOn(_ other: ClientChannel) -> Bool { channel === other || lane === other }
}

/// The channel to which a redirected call goes. The reference is not counted. A request may outlive its call;
/// but the call holds the channel until it ends, and no code reads the route afterwards.
private final class ClientRoute: CallRoute {
  unowned(unsafe) let channel: ClientChannel

  init(_ channel: ClientChannel) {
    self.channel = channel
    let origin = channel.origin
    super.init(
      target: origin.target, authority: origin.defaultAuthority, privacy: origin.privacy, rpc: origin.rpc,
      mostQueryBytes: origin.mostQueryBytes)
  }

  override func newBelow() -> CallBelow? { channel.transport.newAttempt() }
}
