import PenstockCall
import PenstockChannel
import PenstockWire

/// The source of a `BearerToken` that signs its tokens itself.
public final class SignedToken: Sendable {
  public struct Options {
    public var bearer = BearerToken.Options()
    public var signer = TokenSigner.Options()

    public init() {}
  }

  private let signer: TokenSigner
  /// How long a token is used, in nanoseconds.
  private let lifetime: UInt64

  private init(_ options: Options) {
    signer = TokenSigner(options.signer, .call)
    // The claims have whole seconds, rounded down.
    lifetime = options.signer.lifetime - 1_000_000_000
  }

  /// Makes the interceptor that signs the tokens.
  public static func interceptor(_ options: Options) -> BearerToken {
    let source = Unmanaged.passRetained(SignedToken(options)).toOpaque()
    return BearerToken(
      options.bearer, { request, _, source in this(source, SignedToken.self).answer(request) },
      UserData(source) { forget($0, SignedToken.self) })
  }

  private func answer(_ request: UInt64) {
    guard let now = TokenRequests.seconds(of: request) else { return }
    switch signer.sign(now) {
    case .token(let token):
      let outcome = withExtendedLifetime(token) {
        TokenRequests.complete(request, token.view, lifetime: lifetime)
      }
      if outcome == .noMemory { TokenRequests.failForMemory(request) }
    case .failed(let words): _ = TokenRequests.fail(request, Status(.unavailable, words: words))
    case .noMemory: TokenRequests.failForMemory(request)
    }
  }
}
