import CPenstockZstd
import Synchronization
import PenstockWire

/// libzstd, whose format is RFC 8878. It is loaded when a program first asks for it, and stays. `@unchecked Sendable`: the
/// functions never change, and any thread may call them.
public struct Zstd: @unchecked Sendable {
  fileprivate let functions: penstock_zstd

  public static let file: StaticString = "libzstd.so.1"

  /// nil: the system has no such library.
  static let library: Zstd? = {
    var functions = penstock_zstd()
    guard penstock_zstd_load(&functions) == 0 else { return nil }
    wasLoaded.store(true, ordering: .relaxed)
    return Zstd(functions: functions)
  }()
  private static let wasLoaded = Atomic<Bool>(false)

  /// Whether a program has asked for the library, and it is there.
  static var isLoaded: Bool { wasLoaded.load(ordering: .relaxed) }

  /// Loads the library. False: it is not there.
  public static func load() -> Bool { library != nil }

  fileprivate func isError(_ code: Int) -> Bool { functions.is_error(code) != 0 }
}

final class ZstdPacker: Coder {
  private let zstd: Zstd
  private let context: UnsafeMutableRawPointer

  private init(_ zstd: Zstd, _ context: UnsafeMutableRawPointer) {
    self.zstd = zstd
    self.context = context
  }

  /// `size`: the number of bytes of the message. nil: no memory.
  static func make(_ zstd: Zstd, size: Int) -> ZstdPacker? {
    guard let context = zstd.functions.new_packer() else { return nil }
    let packer = ZstdPacker(zstd, context)
    return zstd.isError(zstd.functions.set_size(context, UInt64(size))) ? nil : packer
  }

  deinit { _ = zstd.functions.free_packer(context) }

  override func move(_ input: ByteView, into space: UnsafeMutableRawBufferPointer, isLast: Bool) -> Moved {
    var from = penstock_zstd_in(bytes: input.baseAddress, size: input.count, at: 0)
    var to = penstock_zstd_out(bytes: space.baseAddress, size: space.count, at: 0)
    let directive = Int32((isLast ? PENSTOCK_ZSTD_END : PENSTOCK_ZSTD_GO_ON))
    let left = zstd.functions.pack(context, &to, &from, directive)
    // It compresses whatever it gets, so it can only have lacked memory.
    let state: State = zstd.isError(left) ? .noMemory : isLast && left == 0 ? .ended : .goesOn
    return Moved(used: from.at, made: to.at, state: state)
  }
}

final class ZstdUnpacker: Coder {
  /// The largest window, as a power of two: "it's recommended for decoders to support values of Window_Size up to 8 MB"
  /// (RFC 8878 section 3.1.1.1.2).
  private static let windowLog: Int32 = 23

  private let zstd: Zstd
  private let context: UnsafeMutableRawPointer

  private init(_ zstd: Zstd, _ context: UnsafeMutableRawPointer) {
    self.zstd = zstd
    self.context = context
  }

  /// nil: no memory.
  static func make(_ zstd: Zstd) -> ZstdUnpacker? {
    guard let context = zstd.functions.new_unpacker() else { return nil }
    let unpacker = ZstdUnpacker(zstd, context)
    let parameter = Int32(PENSTOCK_ZSTD_WINDOW_LOG_MAX)
    return zstd.isError(zstd.functions.set_limit(context, parameter, windowLog)) ? nil : unpacker
  }

  deinit { _ = zstd.functions.free_unpacker(context) }

  override func move(_ input: ByteView, into space: UnsafeMutableRawBufferPointer, isLast: Bool) -> Moved {
    var from = penstock_zstd_in(bytes: input.baseAddress, size: input.count, at: 0)
    var to = penstock_zstd_out(bytes: space.baseAddress, size: space.count, at: 0)
    let left = zstd.functions.unpack(context, &to, &from)
    let state: State
    if zstd.isError(left) {
      state = zstd.functions.error_code(left) == PENSTOCK_ZSTD_NO_MEMORY ? .noMemory : .malformed
    } else {
      state = left == 0 ? .ended : .goesOn
    }
    return Moved(used: from.at, made: to.at, state: state)
  }

  /// "Zstandard compressed data is made up of one or more frames" (RFC 8878 section 3).
  override func nextPart() -> Bool { true }
}
