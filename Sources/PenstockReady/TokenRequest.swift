import PenstockCall
import PenstockTransport
import PenstockWire
import Synchronization

/// One token that the user's source is asked for; dropped without an answer it is a failure.
public final class TokenRequest {
  public let generation = Process.generation
  /// The token that the server has refused, followed by a NUL.
  public let refused: ByteBuffer?
  /// The thread that answers takes it: a request that is kept for long does not keep the source.
  private var owner: TokenStore?
  private let prefix: ByteBuffer
  private let number: UInt64
  private let isAnswered = Atomic<Bool>(false)

  init(_ owner: TokenStore, _ number: UInt64, refused: ByteBuffer?) {
    self.owner = owner
    self.number = number
    prefix = owner.options.prefix
    let text = refused.flatMap {
      ByteBuffer(copying: ByteView(rebasing: $0.view[owner.options.prefix.count...]))
    }
    self.refused = text?.append(byte: 0) == true ? text : nil
  }

  deinit {
    guard !Process.isForked(generation) else { return }
    _ = take()?.fail(number, Status(.unavailable, "the token source gave no answer"))
  }

  /// Once.
  private func take() -> TokenStore? {
    guard !isAnswered.exchange(true, ordering: .acquiringAndReleasing) else { return nil }
    defer { owner = nil }
    return owner
  }

  /// Any thread. `lifetime` in nanoseconds; nil: without end.
  public func complete(_ token: ByteView, lifetime: UInt64?) -> Outcome {
    guard !token.isEmpty, HeaderRules.isValidASCIIValue(token) else { return .invalidArgument }
    guard let text = ByteBuffer(copying: prefix.view), text.append(token) else { return .noMemory }
    return take()?.complete(number, text, lifetime) ?? .already
  }

  /// Any thread.
  public func fail(_ status: Status) -> Outcome { take()?.fail(number, status) ?? .already }
}
