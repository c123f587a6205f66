import CPenstockSystem
import PenstockLink
import PenstockWire

/// Signs JSON Web Tokens (RFC 7519) with a private key. The key's file is read for each token, so that a replaced key is
/// used from the next token on.
public final class TokenSigner: Sendable {
  public struct Options {
    /// The path of the key in PEM form, or of a service account's JSON, with a NUL at its end; empty: the other one is
    /// given.
    public var keyFile = ByteBuffer()
    public var accountFile = ByteBuffer()
    /// The name of the key, which a token's header has ("kid"); empty: that of the service account, or none.
    public var keyID = ByteBuffer()
    /// The claims "iss", "sub", "aud" and "scope"; empty: as `Purpose` says.
    public var issuer = ByteBuffer()
    public var subject = ByteBuffer()
    public var audience = ByteBuffer()
    public var scope = ByteBuffer()
    /// The lifetime of a token, in nanoseconds.
    public var lifetime: UInt64 = 3_600_000_000_000

    public init() {}
  }

  /// The use of a token, which decides what an option that is not given stands for. The issuer is by default the
  /// service account.
  public enum Purpose: Sendable {
    /// The token is sent with calls. The subject is by default the issuer.
    case call
    /// The token is exchanged for another (RFC 7523 section 2.1), or proves to the token server who the client is
    /// (2.2). The audience is by default the server that the service account names. Such a token has an id, so that the
    /// server can refuse it the second time (section 3).
    case grant, client
  }

  enum Outcome {
    case token(ByteBuffer)
    /// The words say why there is no token.
    case failed(ByteBuffer)
    case noMemory
  }

  nonisolated(unsafe) private let options: Options
  private let purpose: Purpose

  init(_ options: Options, _ purpose: Purpose) {
    self.options = options
    self.purpose = purpose
  }

  /// Makes a token. `now`: seconds since 1970.
  func sign(_ now: UInt64) -> Outcome {
    let isAccount = !options.accountFile.isEmpty
    let path = isAccount ? options.accountFile : options.keyFile
    let words = ByteBuffer().say(isAccount ? "the service account's file " : "the key file ")
      .say(ByteView(rebasing: path.view.dropLast()))
    switch LocalFile.read(path) {
    case .bytes(let content): return sign(content, now, isAccount: isAccount, words)
    case .tooLarge: return .failed(words.say(" has more than 65536 bytes"))
    case .failed(let code): return .failed(words.say(" can't be read: ").say(errno: code))
    case .noMemory: return .noMemory
    }
  }

  /// `words`: the beginning of an error, which names the file.
  private func sign(_ content: ByteBuffer, _ now: UInt64, isAccount: Bool, _ words: ByteBuffer) -> Outcome {
    var account = ServiceAccount()
    if isAccount {
      let isRead = withExtendedLifetime(content) { account.read(content.view) }
      if account.lacksMemory { return .noMemory }
      if !isRead { return .failed(words.say(" is not the JSON of a service account")) }
    }
    let pem = isAccount ? account.key : content
    switch withExtendedLifetime(pem, { SigningKey.read(pem.view) }) {
    case .noMemory: return .noMemory
    case .unusable(let reason): return .failed(words.say(": ").say(reason.view))
    case .key(let key):
      let token = ByteBuffer()
      guard append(header(key, account), to: token), token.append(byte: 0x2E),
        append(claims(account, now), to: token)
      else { return .noMemory }
      guard let signature = key.sign(token.view) else {
        return .failed(words.say(" has a key that can't sign"))
      }
      let isWhole = withExtendedLifetime(signature) {
        token.append(byte: 0x2E) && Base64.encodeForURL(signature.view, into: token)
      }
      return isWhole ? .token(token) : .noMemory
    }
  }

  private func append(_ json: JSONText, to token: ByteBuffer) -> Bool {
    json.isComplete && withExtendedLifetime(json) { Base64.encodeForURL(json.buffer.view, into: token) }
  }

  private func header(_ key: SigningKey, _ account: ServiceAccount) -> JSONText {
    let json = JSONText()
    json.object {
      json.member("alg", key.algorithm)
      json.member("typ", "JWT")
      add("kid", options.keyID, or: account.keyID, to: json)
    }
    return json
  }

  private func claims(_ account: ServiceAccount, _ now: UInt64) -> JSONText {
    let json = JSONText()
    let none = ByteBuffer()
    let issuer = options.issuer.isEmpty ? account.email : options.issuer
    // A service account that asks for a token on behalf of a user names the user as the subject, and nobody otherwise.
    let isForItself = purpose == .grant && !options.accountFile.isEmpty
    json.object {
      add("iss", issuer, or: none, to: json)
      add("sub", options.subject, or: isForItself ? none : issuer, to: json)
      add("aud", options.audience, or: purpose == .call ? none : account.server, to: json)
      add("scope", options.scope, or: none, to: json)
      json.member("iat", now)
      json.member("exp", now + options.lifetime / 1_000_000_000)
      if purpose != .call {
        let id = ByteBuffer()
        id.say(unsigned: cs_random()).say(unsigned: cs_random())
        json.member("jti", id.view)
      }
    }
    return json
  }

  private func add(_ name: StaticString, _ value: ByteBuffer, or other: ByteBuffer, to json: JSONText) {
    let chosen = value.isEmpty ? other : value
    withExtendedLifetime(chosen) { if !chosen.isEmpty { json.member(name, chosen.view) } }
  }
}

/// The members of a service account's JSON that its tokens need.
private struct ServiceAccount {
  let email = ByteBuffer()
  let key = ByteBuffer()
  let keyID = ByteBuffer()
  let server = ByteBuffer()
  private(set) var lacksMemory = false

  /// False: the text is not the JSON of a service account.
  mutating func read(_ text: ByteView) -> Bool {
    var scanner = JSONScanner(text)
    let name = ByteBuffer()
    let type = ByteBuffer()
    guard scanner.opens(JSONScanner.object) else { return false }
    while scanner.nextMember(name) {
      if bytesEqual(name.view, "type") {
        _ = scanner.string(into: type)
      } else if bytesEqual(name.view, "client_email") {
        _ = scanner.string(into: email)
      } else if bytesEqual(name.view, "private_key") {
        _ = scanner.string(into: key)
      } else if bytesEqual(name.view, "private_key_id") {
        _ = scanner.string(into: keyID)
      } else if bytesEqual(name.view, "token_uri") {
        _ = scanner.string(into: server)
      }
    }
    lacksMemory = scanner.lacksMemory
    return scanner.isAtEnd && bytesEqual(type.view, "service_account") && !email.isEmpty && !key.isEmpty
  }
}
