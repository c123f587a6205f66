import CPenstockOpenSSL
import CPenstockSystem
import PenstockWire

/// The TLS configuration of a channel's later connections. It is made anew when one of its files has changed:
/// the owner calls `look` before each new connection. One thread at a time.
///
/// A file counts as changed if its times, its size or its place in the file system have changed. The stamps
/// are taken before the files are read, so that a change during the reading is seen by the next `look`.
public final class TLSSource {
  public enum Change {
    case unchanged
    /// The configuration is new. The words name the files that have changed.
    case renewed(ByteBuffer)
    /// A file has changed, but can't be used, so the configuration is the one from before. The words name the
    /// file and the reason.
    case kept(ByteBuffer)
  }

  public private(set) var context: TLSContext
  private let options: TLSOptions
  private var stamps: [penstock_file_stamp]

  private init(_ context: TLSContext, _ options: TLSOptions, _ stamps: [penstock_file_stamp]) {
    self.context = context
    self.options = options
    self.stamps = stamps
  }

  /// Makes the configuration of a client. Any thread.
  public static func make(_ options: TLSOptions) -> Made<TLSSource> {
    let stamps = options.stamps
    switch TLSContext.make(role: .client, options: options) {
    case .failed(let failure): return .failed(failure)
    case .made(let context): return .made(TLSSource(context, options, stamps))
    }
  }

  /// Forgets the sessions that later connections could resume. Called in a forked child, so that a session that the
  /// parent may use, too, is resumed by neither twice, and when the program checks servers in another way.
  public func forgetSessions() { context.forgetSessions() }

  /// Makes the configuration anew if a file has changed.
  public func look() -> Change {
    let now = options.stamps
    let changed = ByteBuffer()
    for (index, stamp) in now.enumerated() where penstock_stamps_equal(stamp, stamps[index]) == 0 {
      let (field, path) = options.file(index)
      if !changed.isEmpty { changed.say(", ") }
      changed.say(field)
      if let path {
        withExtendedLifetime(path) { _ = changed.say(" ").say(ByteView(rebasing: path.view.dropLast())) }
      }
    }
    if changed.isEmpty { return .unchanged }
    switch TLSContext.make(role: .client, options: options, replacing: context) {
    case .made(let fresh):
      stamps = now
      context = fresh
      return .renewed(changed)
    case .failed(let failure):
      // A file that could not be used is read again when it changes. After a failure of the system it is read
      // again before the next connection.
      if failure.kind == .option { stamps = now }
      changed.say(": ").say(failure.field).say(": ")
      withExtendedLifetime(failure.text) { _ = changed.say($0.view) }
      return .kept(changed)
    }
  }
}

extension TLSOptions {
  private static let namedFiles = 4

  /// The stamps of all files of the options.
  fileprivate var stamps: [penstock_file_stamp] {
    (0..<TLSOptions.namedFiles + SystemRoots.count).map { index in
      guard let path = file(index).path else { return penstock_file_stamp() }
      return withExtendedLifetime(path) {
        guard let start = path.view.baseAddress else { return penstock_file_stamp() }
        return penstock_stamp(start.assumingMemoryBound(to: CChar.self))
      }
    }
  }

  /// The file at `index`: the option that names it, and its path, which ends with a NUL; nil: the option does
  /// not name a file.
  fileprivate func file(_ index: Int) -> (field: StaticString, path: ByteBuffer?) {
    switch index {
    case 0: ("roots_file", TLSOptions.path(roots))
    case 1: ("certificate_chain_file", TLSOptions.path(certificateChain))
    case 2: ("private_key_file", TLSOptions.path(privateKey))
    case 3: ("crls_file", TLSOptions.path(revocations))
    default: ("the system's roots", systemRoots(index - TLSOptions.namedFiles))
    }
  }

  private static func path(_ source: Source?) -> ByteBuffer? {
    guard case .file(let path) = source else { return nil }
    return terminated(path.view)
  }

  private func systemRoots(_ index: Int) -> ByteBuffer? {
    roots == nil && verifiesPeer ? TLSOptions.terminated(SystemRoots.path(index).bytes) : nil
  }

  private static func terminated(_ path: ByteView) -> ByteBuffer? {
    guard let copy = ByteBuffer(copying: path), copy.append(byte: 0) else { return nil }
    return copy
  }
}
