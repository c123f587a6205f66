import PenstockCall
import PenstockTransport
import PenstockWire
import Synchronization

/// One token that the user's source is asked for; dropped without an answer it is a failure.
public final class TokenRequest {
  public let generation = Process.generation
  /// The token that the server has refused, followed by a NUL.
  public let refused: ByteBuffer?
  private let owner: TokenStore
  private let number: UInt64
  private let isAnswered = Atomic<Bool>(false)

  init(_ owner: TokenStore, _ number: UInt64, refused: ByteBuffer?, prefix: Int) {
    self.owner = owner
    self.number = number
    let text = refused.flatMap { ByteBuffer(copying: ByteView(rebasing: $0.view[prefix...])) }
    self.refused = text?.append(byte: 0) == true ? text : nil
  }

  deinit {
    guard !isAnswered.load(ordering: .acquiring), !Process.isForked(generation) else { return }
    _ = owner.fail(number, Status(.unavailable, "the token source gave no answer"))
  }

  /// Any thread. `lifetime` in nanoseconds; nil: without end.
  public func complete(_ token: ByteView, lifetime: UInt64?) -> Outcome {
    guard !token.isEmpty, HeaderRules.isValidASCIIValue(token) else { return .invalidArgument }
    guard let text = ByteBuffer(copying: owner.options.prefix.view), text.append(token) else {
      return .noMemory
    }
    guard !isAnswered.exchange(true, ordering: .acquiringAndReleasing) else { return .already }
    return owner.complete(number, text, lifetime)
  }

  /// Any thread.
  public func fail(_ status: Status) -> Outcome {
    guard !isAnswered.exchange(true, ordering: .acquiringAndReleasing) else { return .already }
    return owner.fail(number, status)
  }
}
