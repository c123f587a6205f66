import PenstockWire

public func bytes(_ text: String) -> ByteBuffer {
  var text = text
  return text.withUTF8 { ByteBuffer(copying: ByteView($0))! }
}

public func text(_ bytes: ByteView?) -> String? { bytes.map { String(decoding: $0, as: UTF8.self) } }
public func text(_ buffer: ByteBuffer?) -> String? { text(buffer?.view) }

public func buffer(_ bytes: [UInt8]) -> ByteBuffer { bytes.withUnsafeBytes { ByteBuffer(copying: $0)! } }
