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

/// The start of a call as it has come to a hop, and the hops below: what a side call in the place of that call needs.
public final class SideStart {
  fileprivate let request: Request
  /// nil: there are no hops below.
  fileprivate let chain: Chain?

  private init(_ request: Request, _ chain: Chain?) {
    self.request = request
    self.chain = chain
  }

  /// In on_start of `hop`. nil: no memory. No failing initialiser: Embedded Swift would not free the object.
  public static func make(of hop: Hop) -> SideStart? {
    guard let (_, chain) = hop.call.item.live(hop.call), let request = hop.editedStart?.copy() else {
      return nil
    }
    return SideStart(request, hop.index + 1 < chain.entries.count ? Chain(chain, below: hop.index) : nil)
  }

  /// The channel to which a hop above has redirected the call; nil: none has. The call keeps it until it ends.
  fileprivate var lane: ClientChannel? {
    request.route.map { unsafeDowncast($0, to: ClientRoute.self).channel }
  }

  /// Whether the deadline of the call has passed at `time`, in monotonic nanoseconds.
  public func hasPassed(at time: UInt64) -> Bool { request.deadline.map { $0 <= time } ?? false }
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

  /// Makes a side call that is an attempt of the hop's call: it sends `start` through the hops that the call has
  /// below, with its settings and its context. `previous`: how many such calls were made before, as the server is
  /// told. `codes`: those after which another attempt may follow. `other`: the channel that it goes to; nil: where
  /// the hop's call would go. Called on the driving thread. `.closed`: one of the two channels has been closed.
  public static func makeSide(
    of hop: Hop, sending start: SideStart, previous: UInt8, _ codes: StatusCodes, on other: ClientChannel?,
    _ callbacks: CallCallbacks
  ) -> (Outcome, Unmanaged<ClientCall>?) {
    if hop.hasEnded { return (.gone, nil) }
    guard let (parent, _) = hop.call.item.live(hop.call) else { return (.gone, nil) }
    if other?.isOpen == false { return (.closed, nil) }
    let channel = parent.channel
    let (found, named) = find(start.request.pathView, channel, mayDrain: true)
    guard let named else { return (found, nil) }
    let (outcome, made) = make(channel, named, start.request.kind, nil, callbacks, start.chain)
    guard let made else { return (outcome, nil) }
    let isReady = made._withUnsafeGuaranteedRef { side -> Bool in
      let request = side.call.request
      guard request.become(start.request) else { return false }
      request.attemptsBefore = previous
      request.previousAttempts = previous
      request.hedgedCodes = codes
      if let other { request.setRoute(ClientRoute(other)) }
      if side.wasRedirected { _ = side.retainChannel(side.lane) }
      // The messages of the hop's level are bytes.
      side.call.codec = nil
      if let context = hop.call.context { side.call.give(context) }
      side.sideLinks.parent = parent
      if hop.call.trace != nil {
        hop.call.note(.sideCall, hop, detail: Int(truncatingIfNeeded: side.call.id))
      }
      return true
    }
    if isReady { return (.ok, made) }
    made.release()
    return (.noMemory, nil)
  }

  /// Whether the throttle of the channel to which an attempt with `start` would go, or of `other`, lets it be sent.
  /// `status`: that of the last attempt that has failed. Called on the driving thread.
  public static func allowsHedge(
    of hop: Hop, sending start: SideStart, on other: ClientChannel?, after status: Status?
  ) -> Bool {
    guard let (parent, _) = hop.call.item.live(hop.call) else { return false }
    let channel = other ?? start.lane ?? parent.channel
    return channel.transport.allowsHedge(of: hop.call, after: status)
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
    return outcome == .ok && !owner.retainChannel(self) ? .gone : outcome
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

extension ClientChannel {
  /// Why a call of `hop` can't go to this channel; nil: it can. Any thread that has the hop.
  public func refusal(of hop: Hop) -> StaticString? {
    guard let (owner, _) = hop.call.item.live(hop.call) else { return nil }
    if owner.channel.runtime !== runtime { return "it belongs to another runtime" }
    return owner.channel.loop !== loop ? "it is on another loop of the runtime" : nil
  }
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
