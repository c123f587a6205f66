import CMemory
import CVersion
import PenstockWire

/// The library's version, as version.h has it.
enum Version {
  static var text: UnsafePointer<CChar> { penstock_version_text() }
  static var bytes: ByteView { ByteView(start: text, count: Int(strlen(text))) }
}
