import PenstockCall
import PenstockWire

// Calls that a hop makes for the call that it stands in, and calls that a hop sends to another channel.

/// Whose side call a call is, and which are its own. The driving thread's, except that `parent` is set before it opens.
struct Family {
  fileprivate(set) var parent: ClientCall?
  fileprivate var sides: [ClientCall] = []
  /// Where it stands in its parent's list; -1: nowhere.
  fileprivate var slot = -1
  fileprivate var hasEnded = false
}

extension ClientCall {
  public struct SideFlags: OptionSet, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// The whole chain, the hop's own interceptor included.
    public static let fromTop = SideFlags(rawValue: 1)
    /// Neither the parent's deadline nor its end counts.
    public static let detached = SideFlags(rawValue: 2)
    public static let all: SideFlags = [.fromTop, .detached]
  }

  /// Any thread that has the hop: a call on the channel of the hop's call. `.gone`: that has ended.
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
      if !flags.contains(.detached) { made.family.parent = parent }
      if hop.call.trace != nil {
        hop.call.note(.sideCall, hop, detail: Int(truncatingIfNeeded: made.call.id))
      }
    }
    return (outcome, made)
  }

  /// Called before it opens: from now on it ends with its parent.
  func joinFamily() {
    guard let parent = family.parent else { return }
    if parent.family.hasEnded {
      call.perform(.endLocally(ClientCall.orphaned))
      return
    }
    family.slot = parent.family.sides.count
    parent.family.sides.append(self)
    call.limitDeadline(parent.call.request.deadline)
  }

  /// The call has ended, and with it those that were made for it.
  func leaveFamily() {
    family.hasEnded = true
    if let parent = family.parent {
      family.parent = nil
      parent.remove(self)
    }
    if family.sides.isEmpty { return }
    let sides = family.sides
    family.sides = []
    for side in sides {
      side.family.slot = -1
      side.call.submit(.endLocally(ClientCall.orphaned))
    }
  }

  private func remove(_ side: ClientCall) {
    let slot = side.family.slot
    guard slot >= 0, slot < family.sides.count else { return }
    let last = family.sides.removeLast()
    if slot < family.sides.count {
      family.sides[slot] = last
      last.family.slot = slot
    }
    side.family.slot = -1
  }

  private static var orphaned: Status { Status(.cancelled, "the call that it was made for has ended") }
}

extension ClientChannel {
  /// The hop's start or recorded start goes to this channel. In a callback of the hop.
  @inline(never) @_optimize(size)
  public func take(over hop: Hop) -> Outcome {
    guard let (owner, _) = hop.call.item.live(hop.call) else { return .gone }
    guard owner.channel.runtime === runtime else { return .invalidArgument }
    if isClosed { return .closed }
    let outcome = hop.editStart {
      $0.setRoute(ClientRoute(self))
      return .ok
    }
    if outcome == .ok, hop.call.trace != nil { hop.call.note(.redirected, hop) }
    return outcome == .ok && !owner.keep(self) ? .gone : outcome
  }
}

extension ClientCall {
  /// The driving thread, while the call lives: the channel that it runs on.
  var lane: ClientChannel {
    // There is no other class of routes.
    call.request.route.map { unsafeDowncast($0, to: ClientRoute.self).channel } ?? channel
  }
}

/// The reference is not counted: a request may outlive its call, which keeps the channel until it ends, and nothing
/// asks for the way after that.
private final class ClientRoute: CallRoute {
  unowned(unsafe) let channel: ClientChannel

  init(_ channel: ClientChannel) {
    self.channel = channel
    let origin = channel.origin
    super.init(target: origin.target, authority: origin.defaultAuthority, privacy: origin.privacy)
  }

  override func newBelow() -> CallBelow? { channel.transport.newAttempt() }
}
