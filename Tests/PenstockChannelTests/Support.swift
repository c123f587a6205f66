import PenstockWire

func bytes(_ text: String) -> ByteBuffer {
  var text = text
  return text.withUTF8 { ByteBuffer(copying: ByteView($0))! }
}

func text(_ bytes: ByteView?) -> String? { bytes.map { String(decoding: $0, as: UTF8.self) } }
func text(_ buffer: ByteBuffer?) -> String? { text(buffer?.view) }
