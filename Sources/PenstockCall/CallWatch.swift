import PenstockWire
import Synchronization

/// The callback that runs on the driving thread of a runtime, for any thread to see: so that one which does not return
/// can be named, although nothing else of the runtime can be looked at then.
///
/// A sequence lock: one writer, which never waits, and readers that look again if it has written meanwhile. It holds
/// numbers and bytes only, nothing that could be freed under a reader.
public final class CallWatch: @unchecked Sendable {
  /// The beginning of an interceptor's name, as words.
  struct Name {
    var words: (UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0)
    static let size = 32

    init() {}

    init(_ name: ByteView) {
      withUnsafeMutableBytes(of: &words) { bytes in
        for (index, byte) in name.prefix(Name.size).enumerated() { bytes[index] = byte }
      }
    }
  }

  public struct Running {
    public let call: UInt64
    public let event: EventKind
    /// nil: a callback of the call's own.
    public let interceptor: ByteBuffer?
  }

  private let sequence = Atomic<UInt64>(0)
  /// The event, and above it whether an interceptor's callback is meant; 0: none runs.
  private let what = Atomic<UInt64>(0)
  private static let interceptor: UInt64 = 1 << 32
  private let call = Atomic<UInt64>(0)
  private let name0 = Atomic<UInt64>(0)
  private let name1 = Atomic<UInt64>(0)
  private let name2 = Atomic<UInt64>(0)
  private let name3 = Atomic<UInt64>(0)

  public init() {}

  @inline(__always)
  func begin(_ hop: Hop, _ event: EventKind) {
    let words = hop.shortName.words
    open()
    name0.store(words.0, ordering: .releasing)
    name1.store(words.1, ordering: .releasing)
    name2.store(words.2, ordering: .releasing)
    name3.store(words.3, ordering: .releasing)
    close(hop.call.id, UInt64(UInt32(bitPattern: event.rawValue)) | CallWatch.interceptor)
  }

  /// A callback of the caller's.
  public func begin(_ call: UInt64, _ event: EventKind) {
    open()
    close(call, UInt64(UInt32(bitPattern: event.rawValue)))
  }

  @inline(__always)
  public func end() { what.store(0, ordering: .releasing) }

  @inline(__always)
  private func open() {
    sequence.store(sequence.load(ordering: .relaxed) &+ 1, ordering: .relaxed)
  }

  @inline(__always)
  private func close(_ id: UInt64, _ event: UInt64) {
    call.store(id, ordering: .releasing)
    what.store(event, ordering: .releasing)
    sequence.store(sequence.load(ordering: .relaxed) &+ 1, ordering: .releasing)
  }

  /// Any thread. nil: none, or so many in a row that none is worth a name.
  public func running() -> Running? {
    for _ in 0..<1000 {
      let before = sequence.load(ordering: .acquiring)
      guard before & 1 == 0 else { continue }
      let kind = what.load(ordering: .acquiring)
      let id = call.load(ordering: .acquiring)
      var name = Name()
      name.words = (
        name0.load(ordering: .acquiring), name1.load(ordering: .acquiring),
        name2.load(ordering: .acquiring), name3.load(ordering: .acquiring)
      )
      guard sequence.load(ordering: .relaxed) == before else { continue }
      guard kind != 0 else { return nil }
      let event = EventKind(rawValue: Int32(truncatingIfNeeded: kind & 0xffff_ffff)) ?? .none
      guard kind & CallWatch.interceptor != 0 else {
        return Running(call: id, event: event, interceptor: nil)
      }
      return Running(call: id, event: event, interceptor: CallWatch.text(name))
    }
    return nil
  }

  @inline(never) @_optimize(size)
  private static func text(_ name: Name) -> ByteBuffer {
    let text = ByteBuffer()
    var words = name.words
    withUnsafeBytes(of: &words) { bytes in
      for byte in bytes where byte != 0 { _ = text.append(byte: byte) }
    }
    return text
  }
}
