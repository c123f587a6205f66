import PenstockCall
import PenstockWire
import Synchronization

/// The paths of a channel's calls, as requests have them: calls of one method share one, which has been checked.
/// The first that falls on a place stays there as long as the channel: so nobody takes a lock to look.
final class PathCache: @unchecked Sendable {
  /// The paths, each one reference, set once.
  private let paths: UnsafeMutablePointer<Atomic<UnsafeMutableRawPointer?>>
  private static let places = 32
  private static let longest = 200

  init() {
    paths = .allocate(capacity: PathCache.places)
    for place in 0..<PathCache.places { (paths + place).initialize(to: Atomic(nil)) }
  }

  deinit {
    for place in 0..<PathCache.places {
      if let known = paths[place].load(ordering: .acquiring) {
        Unmanaged<ByteBuffer>.fromOpaque(known).release()
      }
    }
    paths.deinitialize(count: PathCache.places)
    paths.deallocate()
  }

  /// Any thread. A path that no call may have is `.invalidArgument`.
  func find(_ path: ByteView) -> (Outcome, ByteBuffer?) {
    let place = (path.count &* 5 &+ Int(path.last ?? 0)) & (PathCache.places - 1)
    if let opaque = paths[place].load(ordering: .acquiring) {
      let known = Unmanaged<ByteBuffer>.fromOpaque(opaque)
      let isKnown = known._withUnsafeGuaranteedRef {
        $0.count == path.count + 1
          && bytesEqual(ByteView(start: $0.view.baseAddress, count: path.count), path)
      }
      if isKnown { return (.ok, known.takeUnretainedValue()) }
    }
    guard Request.isValidPath(path) else { return (.invalidArgument, nil) }
    guard let fresh = Request.terminated(path) else { return (.noMemory, nil) }
    if path.count <= PathCache.longest { keep(fresh, at: place) }
    return (.ok, fresh)
  }

  @inline(never) @_optimize(size)
  private func keep(_ path: ByteBuffer, at place: Int) {
    let kept = Unmanaged.passRetained(path)
    let (isFirst, _) = paths[place].compareExchange(
      expected: nil, desired: kept.toOpaque(), ordering: .acquiringAndReleasing)
    if !isFirst { kept.release() }
  }
}
