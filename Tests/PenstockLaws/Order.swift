/// The order in which the model makes moves (of an event or of demand) that may be made in any order.
///
/// The laws require that the requests of a callback are carried out after it, but not exactly when. They also
/// leave open which of two unrelated events moves first. That can change the result: an event may or may not
/// be overtaken by the end of the call. The model uses one order at a time; a scenario breaks a law only if
/// it breaks it in every order that was tried. The first three orders are those that nearly always fit; all
/// others are random.
struct Order {
  /// When an event leaves that was injected or has waited for demand. `none`: at once. `some`: after the
  /// running callback, and before the next input. `more`: perhaps later than that.
  enum Patience { case some, more, none }

  /// The kinds of moves that the model makes at a hop.
  enum Move: Int { case leaveDown, leaveUp, passDown, passUp, passDemand, open, answer, replay }

  let patience: Patience
  /// Whether the model looks for a surplus message at the caller's side first, and then at the server's side.
  let looksUpFirst: Bool
  private let isDrawn: Bool
  private var random: Random
  /// `slow`: for each kind of move, at how many percent of the hops such a move waits although it could be
  /// made. `fast`: at how many percent it is made although it should wait.
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

  /// Chooses at random which kinds of moves wait, or are made early, at which hops. Sometimes the former
  /// choice stays.
  mutating func draw() {
    guard isDrawn, !random.chance(lasts) else { return }
    slowPlaces = 0
    fastPlaces = 0
    for place in 0..<64 {
      if random.chance(slow[place & 7]) { slowPlaces |= 1 << UInt64(place) }
      if random.chance(fast[place & 7]) { fastPlaces |= 1 << UInt64(place) }
    }
  }

  /// Whether the model may make this move at this hop. `natural` says whether it makes it by default.
  func allows(_ move: Move, _ hop: Int, _ natural: () -> Bool) -> Bool {
    guard isDrawn else { return natural() }
    let bit: UInt64 = 1 << UInt64((hop * 8 + move.rawValue) & 63)
    if slowPlaces & bit != 0 { return false }
    return fastPlaces & bit != 0 || natural()
  }
}
