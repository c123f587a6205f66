import PenstockWire

/// An event that waits at a hop, and why: for its ticket, its executor, demand, or another event in front of
/// it.
public struct Standing {
  public enum State: Sendable {
    case paused, held
    /// The headers wait for the hop's verdict on the event that comes next.
    case heldBack
    /// The event's callback was given to an executor, and has not returned.
    case onExecutor
    /// The message may leave, but the caller has not asked for a message yet.
    case unasked
    /// The event waits behind another event.
    case queued
  }

  public let hop: Int
  /// The interceptor's name, followed by a NUL.
  public let name: ByteBuffer
  public let level: Level
  public let attempt: UInt32
  public let lane: Lane
  public let state: State
  public let event: EventKind
  /// When the event began to wait, in monotonic nanoseconds; 0: not known.
  public let since: UInt64
  /// How many further events wait at the hop before it has seen them.
  public let waiting: Int
}

/// Whom or what the call waits for now.
public enum Holder {
  /// A callback that runs on the thread that asks for the holder.
  case running(name: ByteBuffer, EventKind)
  case hop(Standing)
  /// The hop that has returned TAKE, and so has to answer the call.
  case taken(name: ByteBuffer)
  /// The request waits until it is sent again by the retry policy of its method.
  case retry
  /// The attempt waits for the addresses of the target's name.
  case name
  case connection
  /// There is a connection, but its peer allows no more calls at once.
  case slot
  /// There are connections, but the channel's picker, a hop or the request wants an endpoint that has no
  /// connection.
  case endpoint
  /// The caller has to ask for a message.
  case demand
  case server
  /// The loop: nothing but the loop's next turn is needed for the call to go on.
  case loop
  case nobody
}

extension Call {
  /// The events that wait at the call's hops, from the top hop on. On the driving thread.
  public var standings: [Standing] {
    var found: [Standing] = []
    for hop in hops where hop.isPresent {
      add(hop, hop.outbound, .outbound, to: &found)
      add(hop, hop.inbound, .inbound, to: &found)
    }
    return found
  }

  private func add(_ hop: Hop, _ station: Station?, _ lane: Lane, to found: inout [Standing]) {
    guard let station else { return }
    for index in 0..<station.parked.count {
      let parked = station.parked[index]
      let state: Standing.State
      switch parked.wait {
      case .pause(.ticket): state = .paused
      case .next: state = parked.event.kind == .headers ? .heldBack : .held
      case .hold: state = .held
      case .pause(.job): state = .onExecutor
      case .end: state = .queued
      case .none: state = index == 0 && parked.event.kind == .receive && hop.owed == 0 ? .unasked : .queued
      }
      found.append(
        Standing(
          hop: hop.index, name: hop.registration.name, level: hop.level, attempt: hop.attempt, lane: lane,
          state: state, event: parked.event.kind, since: parked.since, waiting: station.waiting.count))
    }
  }

  /// Finds out whom or what the call waits for now. `standings` are the events that wait at its hops. On the
  /// driving thread.
  public func holder(_ standings: [Standing]) -> Holder {
    guard phase == .live else { return phase == .created ? .loop : .nobody }
    for hop in hops where hop.current != .none {
      return .running(name: hop.registration.name, hop.current)
    }
    // Finds the event that has waited longest among those that are paused, held or on an executor.
    var oldest: Standing?
    for one in standings {
      switch one.state {
      case .paused, .held, .onExecutor: if one.since < oldest?.since ?? UInt64.max { oldest = one }
      case .heldBack, .unasked, .queued: break
      }
    }
    if let oldest { return .hop(oldest) }
    for hop in hops where hop.life == .answering { return .taken(name: hop.registration.name) }
    if leg == .unstarted { return bottomCut?.wait == nil ? .loop : .retry }
    switch borrow(below, { $0.lacks }) ?? .nothing {
    case .name: return .name
    case .connection: return .connection
    case .slot: return .slot
    case .endpoint: return .endpoint
    case .nothing: break
    }
    if let unasked = standings.first(where: { $0.state == .unasked }) { return .hop(unasked) }
    if leg == .ended { return .loop }
    return demandBelow == 0 && !request.kind.receivesOne ? .demand : .server
  }
}
