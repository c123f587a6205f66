import PenstockCall
import PenstockWire

/// A status whose message is a composed text. The text is passed as a buffer, because a view does not keep
/// its buffer: the buffer exists until the called function returns.
extension Status {
  public convenience init(_ code: StatusCode, words: ByteBuffer) {
    self.init(code)
    _ = setMessage(words.view)
  }
}
