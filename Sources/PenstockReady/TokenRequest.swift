import PenstockCall
import PenstockTransport
import PenstockWire
import Synchronization

/// A request for one token, given to the user's source; it fails if it is dropped without an answer.
public final class TokenRequest {
  public let generation = Process.generation
  /// The token that the server has refused, followed by a NUL.
  public let refused: ByteBuffer?
  /// The store; the thread that answers takes it out, so that a request that is kept for long does not keep the
  /// source.
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

  /// Takes the store out; nil: the request was answered before.
  private func take() -> TokenStore? {
    guard !isAnswered.exchange(true, ordering: .acquiringAndReleasing) else { return nil }
    defer { owner = nil }
    return owner
  }

  /// Answers with a token. Any thread. `lifetime` in nanoseconds; nil: without end.
  public func complete(_ token: ByteView, lifetime: UInt64?) -> Outcome {
    guard !token.isEmpty, HeaderRules.isValidASCIIValue(token) else { return .invalidArgument }
    guard let text = ByteBuffer(copying: prefix.view), text.append(token) else { return .noMemory }
    return take()?.complete(number, text, lifetime) ?? .already
  }

  /// Answers with a failure. Any thread.
  public func fail(_ status: Status) -> Outcome { take()?.fail(number, status) ?? .already }
}
