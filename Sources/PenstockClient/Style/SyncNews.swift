import PenstockCall
import PenstockLoop
import PenstockWire

/// The news for the function of a synchronous interceptor in one call: what has become of the response. Under the lock
/// of the `InterceptedCall`.
///
/// | | asked | responded | ended | dropped | givenUp |
/// |---|---|---|---|---|---|
/// | none | awaited | x | over | over | over |
/// | awaited | x | wake -> response | wake -> over | wake -> over | wake -> over |
/// | response | awaited | x | over | over | - |
/// | over | - | - | over (1) | - | - |
///
/// In each cell: whether the waiting thread has to be woken, then the state that follows; "-" changes nothing; "x" can't
/// happen (F1).
///
/// (1): the status of the end is noted, if none is known.
enum SyncNews: StateTable {
  /// The function does not wait.
  case none
  /// The function waits in `next`, with this cell.
  case awaited(WaitCell)
  /// The response has come, or its first part if it is a stream.
  case response(SyncResponse)
  /// The call goes on without the function. The status is that of the call's end; nil: none is known.
  case over(Status?)

  enum Event {
    /// The function calls `next`.
    case asked(WaitCell)
    case responded(SyncResponse)
    /// Something else than the function has ended the call, or the hop has ended.
    case ended(Status?)
    /// The runtime has ended before an order of the function was carried out.
    case dropped
    /// The function's thread can't wait any longer.
    case givenUp
  }

  enum Action {
    case nothing
    /// The waiting thread has to be woken, without the lock.
    case wake(WaitCell)
  }

  static var invariant: StaticString { "F1" }
  static var ignored: Action { .nothing }

  /// Carries out the cell of the table; nil: the event can't happen.
  @inline(__always)
  mutating func apply(_ event: Event) -> Action? {
    switch event {
    case .asked(let cell):
      switch self {
      case .none, .response: return become(.awaited(cell), .nothing)
      case .over: return .nothing
      case .awaited: return nil
      }
    case .responded(let response):
      switch self {
      case .awaited(let cell): return become(.response(response), .wake(cell))
      case .over: return .nothing
      case .none, .response: return nil
      }
    case .ended(let status):
      switch self {
      case .none, .response: return become(.over(status), .nothing)
      case .awaited(let cell): return become(.over(status), .wake(cell))
      case .over(let known): return become(.over(known ?? status), .nothing)
      }
    case .dropped, .givenUp:
      switch self {
      case .none: return become(.over(nil), .nothing)
      case .awaited(let cell): return become(.over(nil), .wake(cell))
      case .response:
        if case .dropped = event { self = .over(nil) }
        return .nothing
      case .over: return .nothing
      }
    }
  }

  var isAwaited: Bool { if case .awaited = self { true } else { false } }
  var isOver: Bool { if case .over = self { true } else { false } }

  var response: SyncResponse? { if case .response(let response) = self { response } else { nil } }
  /// The status of the call's end, if something else than the function has ended the call.
  var endStatus: Status? { if case .over(let status) = self { status } else { nil } }
}
