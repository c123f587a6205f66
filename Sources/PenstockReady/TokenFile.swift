import PenstockCall
import PenstockChannel
import PenstockLoop
import PenstockWire

/// The source of a `BearerToken` whose tokens stand in a file, such as that of a pod in Kubernetes, which is
/// replaced from time to time. The file is small and local, so it is read on the driving thread.
public final class TokenFile: Sendable {
  public struct Options {
    public var bearer = BearerToken.Options()
    /// The path, with a NUL at its end.
    public var path = ByteBuffer()
    /// How old a token may be before the file is read again, in nanoseconds.
    public var reread: UInt64 = 60_000_000_000

    public init() {}
  }

  nonisolated(unsafe) private let path: ByteBuffer
  private let reread: UInt64

  private init(_ options: Options) {
    path = options.path
    reread = options.reread
  }

  /// Makes the interceptor that reads the file.
  public static func interceptor(_ options: Options) -> BearerToken {
    let file = Unmanaged.passRetained(TokenFile(options)).toOpaque()
    var bearer = options.bearer
    // A token is as good as new until `reread` is over, and is used for as long again if the file can't be
    // read then.
    bearer.refreshEarly = options.reread
    return BearerToken(
      bearer, { request, _, file in this(file, TokenFile.self).answer(request) },
      UserData(file) { forget($0, TokenFile.self) })
  }

  private func answer(_ request: UInt64) {
    switch LocalFile.read(path) {
    case .bytes(let read):
      let outcome = withExtendedLifetime(read) {
        TokenRequests.complete(request, TokenFile.trimmed(read.view), lifetime: 2 * reread)
      }
      if outcome == .noMemory { return TokenRequests.failForMemory(request) }
      if outcome != .invalidArgument { return }
    case .tooLarge: break
    case .failed(let code):
      return fail(request, words.say(" can't be read: ").say(errno: code))
    case .noMemory: return TokenRequests.failForMemory(request)
    }
    fail(request, words.say(" has no token: expected visible ASCII of at most 65536 bytes"))
  }

  /// The beginning of each error.
  private var words: ByteBuffer {
    ByteBuffer().say("the token file ").say(ByteView(rebasing: path.view.dropLast()))
  }

  private func fail(_ request: UInt64, _ words: ByteBuffer) {
    _ = TokenRequests.fail(request, Status(.unavailable, words: words))
  }

  /// The text without the blanks and line ends around it.
  private static func trimmed(_ text: ByteView) -> ByteView {
    func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || (byte >= 0x09 && byte <= 0x0D) }
    guard let first = text.firstIndex(where: { !isBlank($0) }),
      let last = text.lastIndex(where: { !isBlank($0) })
    else { return ByteView(rebasing: text[text.startIndex..<text.startIndex]) }
    return ByteView(rebasing: text[first...last])
  }
}
