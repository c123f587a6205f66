import PenstockTransport
import PenstockLoop

/// A probability, as a number of 2^32 equally likely cases.
public struct Chance: Sendable {
  let threshold: UInt64

  /// Makes a probability from a percentage, 0 to 100.
  public init(percent: Double) { threshold = UInt64(percent / 100 * 4_294_967_296) }
}

/// A random number generator (SplitMix64) that any thread may use. With the same seed it returns the same
/// numbers each time.
final class Dice: @unchecked Sendable {
  private let lock = Lock()
  private var state: UInt64
  private let isSeeded: Bool
  /// The value of `Process.forks` when `state` was set. If it is different now, this process is a forked
  /// child. Without a seed the child then sets a new random state.
  private var forks = Process.forks

  init(seed: UInt64?) {
    var system = SystemRandomNumberGenerator()
    state = seed ?? system.next()
    isSeeded = seed != nil
  }

  func roll() -> UInt64 {
    lock.lock()
    if forks != Process.forks, !isSeeded {
      forks = Process.forks
      var system = SystemRandomNumberGenerator()
      state = system.next()
    }
    state &+= 0x9e37_79b9_7f4a_7c15
    var z = state
    lock.unlock()
    z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
    z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
    return z ^ (z >> 31)
  }

  /// An id of 64 bits, which is never 0.
  func rollID() -> UInt64 { max(roll(), 1) }

  func happens(_ chance: Chance) -> Bool { roll() >> 32 < chance.threshold }
}
