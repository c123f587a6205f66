import CPenstockMemory
import PenstockWire

/// A static string as a C string. The storage of a static string ends with a NUL.
public func cString(_ text: StaticString) -> UnsafePointer<CChar> {
  UnsafeRawPointer(text.utf8Start).assumingMemoryBound(to: CChar.self)
}

public func cString(_ terminated: ByteBuffer) -> UnsafePointer<CChar> {
  terminated.view.baseAddress.map { $0.assumingMemoryBound(to: CChar.self) } ?? cString("")
}

public func cString(_ terminated: ByteView) -> UnsafePointer<CChar> {
  terminated.baseAddress.map { $0.assumingMemoryBound(to: CChar.self) } ?? cString("")
}
