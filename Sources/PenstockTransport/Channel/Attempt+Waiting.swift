import PenstockCall
import PenstockChannel
import PenstockHTTP
import PenstockWire

/// How an attempt waits for a connection, and begins on it.
extension Attempt {
  /// The place of an attempt among those of its call. When an attempt has ended, it says what the next one will be.
  enum Order {
    case first
    case again
    /// The server has refused the attempt before. This one gets the next slot, before others that wait: otherwise it
    /// might be refused again too often.
    case afterRefusal
  }

  /// Whether the attempt waits for a connection, or for a free stream on a connection.
  var isWaiting: Bool { life.isWaiting }

  /// Finds a connection later than `start` does: once the whole request is known, or after a stream that sent nothing.
  func attachLate() { if isChoosy { core.ask(self) } else { core.attach(self) } }

  /// Opens a stream on `connection`, which can open at least one more stream.
  public func open(on connection: TransportConnection) {
    guard let call, life.mayOpen else { return }
    var all = PieceQueue()
    swap(&all, &pieces)
    let stream = connection.newStream(self, sending: consume all)
    stream.endsAfterPieces = request == .whole
    self.stream = stream
    life.handle(.opens)
    call._withUnsafeGuaranteedRef {
      $0.connection = connection.facts
      if sentEarly > 0 { _ = borrow($0.connection) { $0.sentMessages.add(sentEarly) } }
    }
    stream.open()
    scheduleRest()
    check()
  }

  /// Tells the call's statistics that the attempt waits for `lack` from now on.
  func notesWait(for lack: Lack) { call?._withUnsafeGuaranteedRef { $0.waits(for: lack) } }

  /// How long the attempt may wait while the channel has no connection.
  public var patience: Patience {
    if call?._withUnsafeGuaranteedRef({ $0.request.settings.waitsForReady }) ?? false { return .anyTime }
    return life.wasPickedAgain || isRepeat ? .oneConnection : .none
  }

  /// Whether the attempt was picked again before and has to fail now, because no address can be connected to.
  var isGivenUp: Bool { life.wasPickedAgain && patience < .anyTime && withCore { $0.pick == .fail } }
}
