import CPenstockOpenSSL
import PenstockCall
import PenstockWire

/// The program's own check of servers' certificates, beside those of the options; also the object of the
/// penstock_verification handle, which shows the server that is checked. Driving thread only.
public final class ServerVerifier {
  /// The function. Its arguments are this object and the user data. It calls `accept` or `refuse`.
  public typealias Function = @convention(c) (OpaquePointer?, UnsafeMutableRawPointer?) -> Void

  private enum Answer {
    /// None so far, which counts as a refusal: a function that was broken off accepts nobody.
    case none
    case accepted
    case refused(ByteBuffer?)
  }

  private static let mostWords = 500

  private let function: Function
  private let userData: UserData
  /// The certificates of the server that is checked; nil: the function does not run.
  private var chain: OpaquePointer?
  /// The name that the server's certificate has to fit, with a NUL; nil: any.
  public private(set) var name: ByteBuffer?
  /// The certificates that the function has asked for, in DER form, each with its place in the chain.
  private var encoded: [(index: Int, bytes: ByteBuffer)] = []
  private var answer = Answer.none

  public init(_ function: @escaping Function, _ userData: UserData) {
    self.function = function
    self.userData = userData
  }

  /// The reason why the program refuses the server; nil: it accepts it. `chain`: the chain as it was verified, or the
  /// certificates that the server has sent if it was not.
  func flaw(of chain: OpaquePointer?, _ name: ByteBuffer?) -> ByteBuffer? {
    self.chain = chain
    self.name = name
    answer = .none
    function(OpaquePointer(Unmanaged.passUnretained(self).toOpaque()), userData.pointer)
    let answer = answer
    self.answer = .none
    self.chain = nil
    self.name = nil
    encoded = []
    let flaw = ByteBuffer().say("the program refuses the server")
    switch answer {
    case .accepted: return nil
    case .none: return flaw.say(" without an answer")
    case .refused(let words):
      if let words { flaw.say(": ").say(words.view) }
      return flaw
    }
  }

  /// The number of certificates.
  public var count: Int { chain.map { Int(penstock_chain_count($0)) } ?? 0 }

  /// The certificate at `index` in DER form, the server's own first; nil: there is none, or no memory.
  public func certificate(_ index: Int) -> ByteBuffer? {
    if let known = encoded.first(where: { $0.index == index }) { return known.bytes }
    guard let chain, index >= 0, index < count, let one = penstock_chain_at(chain, Int32(index)) else {
      return nil
    }
    let size = Int(i2d_X509(one, nil))
    guard size > 0, let bytes = ByteBuffer(capacity: size), let room = bytes.spare(atLeast: size) else {
      return nil
    }
    var end = room.baseAddress?.assumingMemoryBound(to: UInt8.self)
    guard Int(i2d_X509(one, &end)) == size else { return nil }
    bytes.commit(size)
    encoded.append((index, bytes))
    return bytes
  }

  /// Accepts the server, unless it is refused.
  public func accept() {
    if case .none = answer { answer = .accepted }
  }

  /// Refuses the server, for the reason in `words`.
  public func refuse(_ words: ByteView?) {
    answer = .refused(words.map { ByteBuffer().say(printable: $0, limit: ServerVerifier.mostWords) })
  }
}
