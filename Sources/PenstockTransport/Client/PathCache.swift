import PenstockCall
import PenstockWire

/// The paths of a channel's calls, as requests have them: calls of one method share one, which has been checked.
/// A few, each replaced by the next that falls on its place.
final class PathCache: @unchecked Sendable {
  private let lock = Lock()
  private var paths: [ByteBuffer?] = []
  private static let places = 16
  private static let longest = 200

  /// Any thread. A path that no call may have is `.invalidArgument`.
  func find(_ path: ByteView) -> (Outcome, ByteBuffer?) {
    let place = (path.count &+ Int(path.last ?? 0)) & (PathCache.places - 1)
    lock.lock()
    if !paths.isEmpty, let known = paths[place], known.count == path.count + 1,
      bytesEqual(ByteView(rebasing: known.view.dropLast()), path)
    {
      lock.unlock()
      return (.ok, known)
    }
    lock.unlock()
    guard Request.isValidPath(path) else { return (.invalidArgument, nil) }
    guard let fresh = Request.terminated(path) else { return (.noMemory, nil) }
    if path.count <= PathCache.longest { keep(fresh, at: place) }
    return (.ok, fresh)
  }

  @inline(never) @_optimize(size)
  private func keep(_ path: ByteBuffer, at place: Int) {
    lock.lock()
    if paths.isEmpty { paths = [ByteBuffer?](repeating: nil, count: PathCache.places) }
    let old = paths[place]
    paths[place] = path
    lock.unlock()
    withExtendedLifetime(old) {}
  }
}
