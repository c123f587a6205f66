import CPenstockOpenSSL
import CPenstockSystem
import PenstockWire

/// A file to which the keys of connections are appended, in the form that Wireshark reads
/// ("SSLKEYLOGFILE"). Everybody who can read the file can read those connections.
final class KeyLog {
  private let descriptor: Int32

  enum Opened {
    case opened(KeyLog)
    case failed(Int32)
  }

  private init(_ descriptor: Int32) { self.descriptor = descriptor }

  deinit { cs_close(descriptor) }

  /// Opens the file, or makes it, readable by its owner only.
  static func open(_ path: ByteView) -> Opened {
    guard let name = ByteBuffer(copying: path), name.append(byte: 0), let start = name.view.baseAddress else {
      return .failed(ENOMEM)
    }
    if path.contains(0) { return .failed(EINVAL) }
    let descriptor = withExtendedLifetime(name) {
      penstock_open_append(start.assumingMemoryBound(to: CChar.self))
    }
    return descriptor < 0 ? .failed(-descriptor) : .opened(KeyLog(descriptor))
  }

  func append(_ line: UnsafePointer<CChar>) { penstock_append_line(descriptor, line) }
}
