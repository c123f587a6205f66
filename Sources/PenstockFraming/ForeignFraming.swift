import PenstockCall
import PenstockWire
import PenstockLink
import PenstockLoop
import PenstockHTTP

/// Reads an answer that belongs to no RPC, such as the page of a proxy, in place of the framing that has found this
/// out. The first bytes of its body go into the status of the call, for people who look for the cause.
public final class ForeignFraming: Framing {
  private let ended: Status
  /// The timer after which no more of the body is awaited.
  public let patience: Timer
  private let body = ByteBuffer()

  public init(_ status: Status, _ patience: Timer) {
    ended = status
    self.patience = patience
    super.init()
    hearsEnd = true
  }

  public override var timer: Timer? { patience }

  /// A message that the caller sends meanwhile is dropped: the call ends soon.
  public override func encode(_ message: Message) -> FramedMessage { .inHeaders(size: 0, wireSize: 0) }

  public override func decode(_ bytes: ByteView) -> (consumed: Int, step: BodyStep) {
    for byte in bytes.prefix(Limits.foreignBodyBytes - body.count) {
      let isBlank = byte == 0x09 || byte == 0x0A || byte == 0x0D
      _ = body.append(byte: isBlank ? 0x20 : byte >= 0x20 && byte < 0x7F ? byte : 0x2E)
    }
    return (bytes.count, body.count < Limits.foreignBodyBytes ? .needsMore : .failed(status))
  }

  public override func bodyEnds() -> BodyStep { .failed(status) }

  public override func status(_ end: StreamEnd, trailers: consuming Status?, deadlineHasPassed: Bool)
    -> Status
  {
    status
  }

  private var status: Status {
    if !body.isEmpty { ended.body = body }
    return ended
  }
}
