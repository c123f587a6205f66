/// In which order the model does what may be done in any order.
///
/// The laws leave open when a callback's wishes are done, beyond "after what runs", and which of two unrelated events
/// moves first. That can lead to different ends: one that is overtaken by a finish, or is not. The model takes one
/// order; a scenario breaks a law only if it does so in every order that was tried. The first ones are those that
/// nearly always fit; then some are drawn.
struct Order {
  /// When what has been put in, or has waited for demand, may leave.
  enum Patience { case some, more, none }

  /// What moves at a hop.
  enum Move: Int { case leaveDown, leaveUp, passDown, passUp, passDemand, open, answer, replay }

  let patience: Patience
  /// Where a message too many is looked for first: at the caller's end.
  let looksUpFirst: Bool
  private let isDrawn: Bool
  private var random: Random
  /// By move, in a hundred: how often it waits though it could be done, and is done though it should wait.
  private var slow = [Int](repeating: 0, count: 8)
  private var fast = [Int](repeating: 0, count: 8)
  private var lasts = 0
  private var slowPlaces: UInt64 = 0
  private var fastPlaces: UInt64 = 0

  init(_ number: Int) {
    random = Random(UInt64(number))
    patience = [.some, .more, .none][number % 3]
    isDrawn = number >= 3
    looksUpFirst = number & 1 == 1
    guard isDrawn else { return }
    for move in slow.indices {
      slow[move] = random.pick([0, 0, 5, 50, 100])
      fast[move] = random.pick([0, 0, 5, 50, 100])
    }
    lasts = random.pick([0, 50, 80, 95])
  }

  /// Draws anew, perhaps: which hops are slow, which are fast, for which moves.
  mutating func draw() {
    guard isDrawn, !random.chance(lasts) else { return }
    slowPlaces = 0
    fastPlaces = 0
    for place in 0..<64 {
      if random.chance(slow[place & 7]) { slowPlaces |= 1 << UInt64(place) }
      if random.chance(fast[place & 7]) { fastPlaces |= 1 << UInt64(place) }
    }
  }

  /// May it be done; `natural`: it would.
  func allows(_ move: Move, _ hop: Int, _ natural: () -> Bool) -> Bool {
    guard isDrawn else { return natural() }
    let bit: UInt64 = 1 << UInt64((hop * 8 + move.rawValue) & 63)
    if slowPlaces & bit != 0 { return false }
    return fastPlaces & bit != 0 || natural()
  }
}
