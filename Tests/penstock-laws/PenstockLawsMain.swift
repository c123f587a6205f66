import CPenstockSystem
import PenstockLaws

// The law tests without a test framework, so that they run in Embedded Swift too:
//
//   penstock-laws SEED COUNT [SECONDS]
//
// runs COUNT scenarios from SEED, or as many as SECONDS allow (COUNT is then ignored). The first one that breaks a law
// is shrunk (unless PENSTOCK_SHRINK is 0) and printed, and ends the run. The last line is `N passed, N failed`.

/// SwiftPM renames an executable's `main` to this.
@_cdecl("penstock_laws_main")
public func penstockLawsMain(_ count: Int32, _ values: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>)
  -> Int32
{
  func number(_ index: Int) -> UInt64? { index < count ? values[index].map { strtoull($0, nil, 10) } : nil }
  guard let seed = number(1), let wanted = number(2) else {
    print("usage: penstock-laws SEED COUNT [SECONDS]")
    return 2
  }
  let shrinks = getenv("PENSTOCK_SHRINK").map { strtoull($0, nil, 10) != 0 } ?? true
  let started = cs_monotonic()
  let end = number(3).map { started + $0 * 1_000_000_000 }
  var passed: UInt64 = 0
  var told = started
  while end == nil ? passed < wanted : cs_monotonic() < end! {
    guard Laws.hold(seed &+ passed, shrinks: shrinks, report: { print($0) }) else {
      print("\(passed) passed, 1 failed")
      return 1
    }
    passed += 1
    if passed & 1023 == 0, cs_monotonic() - told > 60_000_000_000 {
      told = cs_monotonic()
      print("... \(passed) scenarios from PENSTOCK_SEED=\(seed)")
    }
  }
  print("\(passed) scenarios from PENSTOCK_SEED=\(seed)")
  print("\(passed) passed, 0 failed")
  return 0
}
