import PenstockCall
import PenstockWire

// Side calls: calls that a hop makes for the call to which the hop belongs. Redirects: by them a hop sends
// its call to another channel.

/// The links between a call and its side calls. Used by the driving thread only, except that `parent` is set before
/// the call opens.
struct SideCallLinks {
  fileprivate(set) var parent: ClientCall?
  fileprivate var sides: [ClientCall] = []
  /// The index of this call in its parent's `sides`; -1: it is not in that list.
  fileprivate var slot = -1
  fileprivate var hasEnded = false
}

extension ClientCall {
  public struct SideFlags: OptionSet, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// The side call meets the whole chain, the hop's own interceptor included.
    public static let fromTop = SideFlags(rawValue: 1)
    /// Neither the parent's deadline nor the parent's end ends the side call.
    public static let detached = SideFlags(rawValue: 2)
    public static let all: SideFlags = [.fromTop, .detached]
  }

  /// Makes a call on the channel of the hop's call. Any thread that has the hop. `.gone`: the hop's call has ended.
  @inline(never) @_optimize(size)
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
    // Below the codec messages are bytes; a call that starts there has a codec only if its options say so.
    made?._withUnsafeGuaranteedRef { made in
      if flags.isDisjoint(with: .fromTop), hop.level == .bytes { made.call.codec = options?.codec }
      if !flags.contains(.detached) { made.sideLinks.parent = parent }
      if hop.call.trace != nil {
        hop.call.note(.sideCall, hop, detail: Int(truncatingIfNeeded: made.call.id))
      }
    }
    return (outcome, made)
  }

  /// Called before the call opens: from now on this call ends when its parent ends, or at the parent's deadline.
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

  /// Called when the call has ended: takes it out of its parent's list, and ends its own side calls.
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
  /// Redirects the hop's call: its start, or the recorded start that a RESTART sends, goes to this channel. Called in
  /// a callback of the hop.
  @inline(never) @_optimize(size)
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
  /// The channel that the call runs on. The driving thread only, while the call lives.
  var lane: ClientChannel {
    // ClientRoute is the only class of routes.
    call.request.route.map { unsafeDowncast($0, to: ClientRoute.self).channel } ?? channel
  }

  /// Whether a hop has sent the call to another channel, perhaps more than once. The driving thread only.
  var wasRedirected: Bool { call.request.route != nil }

  /// Whether the call was made on this channel, or runs on it. The driving thread only, while the call lives.
  func isOn(_ other: ClientChannel) -> Bool { channel === other || lane === other }
}

/// The route to another channel. The reference is not counted: a request may outlive its call, but the call keeps the
/// channel until it ends, and no code asks for the route after that.
private final class ClientRoute: CallRoute {
  unowned(unsafe) let channel: ClientChannel

  init(_ channel: ClientChannel) {
    self.channel = channel
    let origin = channel.origin
    super.init(target: origin.target, authority: origin.defaultAuthority, privacy: origin.privacy)
  }

  override func newBelow() -> CallBelow? { channel.transport.newAttempt() }
}
