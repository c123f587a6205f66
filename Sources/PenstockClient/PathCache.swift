import PenstockCall
import PenstockWire
import Synchronization
import PenstockLink
import PenstockTransport

/// Checked copies of the paths of a channel's calls. All calls of one method share one copy. The first path
/// that hashes to a slot keeps the slot until the channel is freed, so a thread needs no lock to find a path.
final class PathCache: @unchecked Sendable {
  /// The slots. Each has a counted reference to a path, which is set once.
  private let paths: UnsafeMutablePointer<Atomic<UnsafeMutableRawPointer?>>
  private static let slotCount = 32
  private static let longest = 200

  init() {
    paths = .allocate(capacity: PathCache.slotCount)
    for index in 0..<PathCache.slotCount { (paths + index).initialize(to: Atomic(nil)) }
  }

  deinit {
    for index in 0..<PathCache.slotCount {
      if let known = paths[index].load(ordering: .acquiring) {
        Unmanaged<ByteBuffer>.fromOpaque(known).release()
      }
    }
    paths.deinitialize(count: PathCache.slotCount)
    paths.deallocate()
  }

  /// Returns the shared copy of `path`, or makes a copy. Any thread. `.invalidArgument`: the path is not
  /// valid for a call.
  func find(_ path: ByteView) -> (Outcome, ByteBuffer?) {
    let index = (path.count &* 5 &+ Int(path.last ?? 0)) & (PathCache.slotCount - 1)
    if let opaque = paths[index].load(ordering: .acquiring) {
      let known = Unmanaged<ByteBuffer>.fromOpaque(opaque)
      let isKnown = known._withUnsafeGuaranteedRef {
        $0.count == path.count + 1
          && bytesEqual(ByteView(start: $0.view.baseAddress, count: path.count), path)
      }
      if isKnown { return (.ok, known.takeUnretainedValue()) }
    }
    guard Request.isValidPath(path) else { return (.invalidArgument, nil) }
    guard let fresh = Request.terminated(path) else { return (.noMemory, nil) }
    if path.count <= PathCache.longest { keep(fresh, at: index) }
    return (.ok, fresh)
  }

  private func keep(_ path: ByteBuffer, at index: Int) {
    let retained = Unmanaged.passRetained(path)
    let (isFirst, _) = paths[index].compareExchange(
      expected: nil, desired: retained.toOpaque(), ordering: .acquiringAndReleasing)
    if !isFirst { retained.release() }
  }
}
