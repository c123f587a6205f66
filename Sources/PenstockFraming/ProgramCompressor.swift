import PenstockCall
import PenstockLoop
import PenstockWire

/// A compression of the program's own: the object of the penstock_compressor handle. `@unchecked Sendable`: it never
/// changes, and its functions are called on driving threads.
public final class ProgramCompressor: @unchecked Sendable {
  /// A function that compresses or decompresses one whole message. The handle is a `MessageCompression`, which gets
  /// the result. 0: it has succeeded.
  public typealias Function =
    @convention(c) (UnsafeMutableRawPointer?, UnsafeRawPointer?, Int, OpaquePointer?) -> Int32

  public let name: CompressionName
  private let compressFunction: Function
  private let decompressFunction: Function
  private let userData: UserData

  /// Makes a compressor; nil: no memory. (In Embedded Swift an initializer that returns nil leaks its object.)
  public static func make(
    _ name: ByteView, compress: @escaping Function, decompress: @escaping Function, _ userData: UserData
  ) -> ProgramCompressor? {
    Names.shared.add(name).map { ProgramCompressor($0, compress, decompress, userData) }
  }

  private init(
    _ name: CompressionName, _ compress: @escaping Function, _ decompress: @escaping Function,
    _ userData: UserData
  ) {
    self.name = name
    compressFunction = compress
    decompressFunction = decompress
    self.userData = userData
  }

  deinit { Names.shared.remove(name) }

  func compress(_ message: ByteBuffer) -> MessageCompression.Outcome {
    run(compressFunction, message, limit: MessageCompression.mostBytes)
  }

  func decompress(_ message: ByteBuffer, limit: Int) -> MessageCompression.Outcome {
    run(decompressFunction, message, limit: limit)
  }

  private func run(_ function: Function, _ input: ByteBuffer, limit: Int) -> MessageCompression.Outcome {
    let work = MessageCompression(limit: limit)
    let handle = OpaquePointer(Unmanaged.passUnretained(work).toOpaque())
    return withExtendedLifetime((input, work)) {
      let code = function(userData.pointer, input.view.baseAddress, input.count, handle)
      return work.outcome(code)
    }
  }

  // MARK: Names

  /// The names of the compressors that there are and have been in the process, and the number of those that there are.
  /// With them an option with a wrong name is refused, although a channel gets its compressors only after its options.
  private final class Names: @unchecked Sendable {
    private static let processSlot = 9
    private let lock = Lock()
    private var all: [(name: CompressionName, count: Int)] = []
    /// The bytes of the names.
    private var texts: [ByteBuffer] = []

    /// The only object of this class in the process; a forked child makes its own.
    static var shared: Names {
      Process.withLock { () -> Names in
        let slot = Process.slot(processSlot)
        if let raw = UnsafeRawPointer(bitPattern: slot.pointee) {
          return Unmanaged<Names>.fromOpaque(raw).takeUnretainedValue()
        }
        let fresh = Names()
        slot.pointee = UInt(bitPattern: Unmanaged.passRetained(fresh).toOpaque())
        return fresh
      }
    }

    /// Counts one more compressor with this name; nil: no memory.
    func add(_ name: ByteView) -> CompressionName? {
      lock.withLock { () -> CompressionName? in
        if let index = all.firstIndex(where: { bytesEqual($0.name.name, name) }) {
          all[index].count += 1
          return all[index].name
        }
        guard let text = ByteBuffer(copying: name), text.append(byte: 0), let start = text.view.baseAddress
        else { return nil }
        texts.append(text)
        let made = CompressionName(text: start)
        all.append((made, 1))
        return made
      }
    }

    func remove(_ name: CompressionName) {
      lock.withLock { if let index = all.firstIndex(where: { $0.name == name }) { all[index].count -= 1 } }
    }

    func find(_ name: ByteView) -> CompressionName? {
      lock.withLock { all.first { $0.count > 0 && bytesEqual($0.name.name, name) }?.name }
    }
  }

  /// The compression with this name that a compressor in the process makes; nil: there is none. Any thread.
  public static func compression(named name: ByteView) -> Compression? {
    Names.shared.find(name).map { .named($0) }
  }
}

/// The result of the work of a program's compressor on one message: the object of the penstock_compression handle, valid
/// until the function returns.
public final class MessageCompression {
  enum Outcome {
    case bytes(ByteBuffer)
    /// The program has reported a failure, perhaps with words.
    case failed(ByteBuffer?)
    case tooLarge
    case noMemory
  }

  /// The most bytes of a message that can be framed.
  static let mostBytes = Int(UInt32.max)
  private static let mostWords = 500

  private let bytes = ByteBuffer()
  private let limit: Int
  private var words: ByteBuffer?
  private var isOver = false
  private var lacksMemory = false

  fileprivate init(limit: Int) { self.limit = max(limit, 0) }

  /// The number of bytes that may still be appended.
  public var room: Int { isOver || lacksMemory ? 0 : limit - bytes.count }

  /// Appends bytes of the result. With the first bytes that are too many the message has failed, and its memory is freed.
  public func append(_ more: ByteView) -> PenstockCall.Outcome {
    if isOver || more.count > limit - bytes.count {
      isOver = true
      bytes.removeAll(keepingCapacity: false)
      return .tooLarge
    }
    if lacksMemory || !bytes.append(more) {
      lacksMemory = true
      bytes.removeAll(keepingCapacity: false)
      return .noMemory
    }
    return .ok
  }

  /// Keeps the reason of a failure.
  public func fail(_ words: ByteView) {
    self.words = ByteBuffer().say(printable: words, limit: MessageCompression.mostWords)
  }

  fileprivate func outcome(_ code: Int32) -> Outcome {
    if isOver { return .tooLarge }
    if lacksMemory { return .noMemory }
    return code == 0 && words == nil ? .bytes(bytes) : .failed(words)
  }
}

/// The compressors of a channel. A further one makes a new list, so that the header fields that name them are made anew.
/// Driving thread only.
public final class ProgramCompressors {
  private let all: [ProgramCompressor]
  private let mark: ClockMark
  /// The names of all compressions that answers may use, those of the program first, with gaps for the library's own.
  let names: ByteBuffer

  /// `earlier`: the compressors so far; one with the same name as `added` counts no more.
  public init(_ earlier: ProgramCompressors?, _ added: ProgramCompressor, _ mark: ClockMark) {
    all = (earlier?.all ?? []).filter { $0.name != added.name } + [added]
    self.mark = mark
    names = ByteBuffer()
    for one in all { names.say(one.name.name).say(",") }
  }

  /// The compressor with this name: "All content codings are case-insensitive" (RFC 9110 section 8.4.1).
  public func find(_ name: ByteView) -> ProgramCompressor? {
    for one in all where one.name.name.count == name.count && hasPrefixIgnoringCase(name, one.name.name) {
      return one
    }
    return nil
  }

  /// Notes that a function of the program has run, which may have taken long.
  func haveRun() { mark.isStale = true }
}
