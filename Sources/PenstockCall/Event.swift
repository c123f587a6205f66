import PenstockWire

/// The events that travel along a lane of a call.
public enum Event {
  // The events of the outbound lane.
  case start
  case send(Message)
  case halfClose
  // The events of the inbound lane.
  case headers(Metadata)
  case receive(Message)
  case status(Status)

  /// The kind of the event; its raw values are the PENSTOCK_EVENT_... numbers of the ABI.
  public var kind: EventKind {
    switch self {
    case .start: .start
    case .send: .send
    case .halfClose: .halfClose
    case .headers: .headers
    case .receive: .receive
    case .status: .status
    }
  }

  var message: Message? {
    switch self {
    case .send(let message), .receive(let message): message
    case .start, .halfClose, .headers, .status: nil
    }
  }

  /// Whether the event is the last one of its lane.
  var isLast: Bool { kind == .halfClose || kind == .status }
}

public enum EventKind: Int32, Sendable {
  case none = 0
  case start = 1
  case send = 2
  case halfClose = 3
  case headers = 4
  case receive = 5
  case status = 6
  case cancel = 7
  case demand = 8
  case sent = 9
  case create = 10
  case destroy = 11
  case pick = 12

  /// The lane of an event of this kind. Kinds that travel along no lane, such as signals, count as inbound.
  var lane: Lane { rawValue <= EventKind.halfClose.rawValue ? .outbound : .inbound }

  /// Whether a callback may answer this event with `verdict`.
  func allows(_ verdict: Verdict) -> Bool {
    switch verdict {
    case .next, .pause, .hold: true
    case .drop: self == .send || self == .receive
    case .take: self == .start
    case .restart: self == .status
    case .skip: false
    }
  }

  /// Whether the owner of a ticket for this event may resolve it with `verdict`.
  public func resolves(with verdict: Verdict) -> Bool {
    verdict != .pause && verdict != .hold && allows(verdict)
  }
}

public enum Lane { case outbound, inbound }
