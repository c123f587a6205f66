/// The result of a user's operation; the raw values are those of the ABI's `penstock_result`.
public enum Outcome: Int32, Sendable {
  case ok = 0
  case invalidArgument = 1
  case invalidJSON = 2
  case noMemory = 3
  case unsupported = 4
  case already = 5
  case gone = 6
  case wouldBlock = 7
  case wouldDeadlock = 8
  case busy = 9
  case timedOut = 10
  case interrupted = 11
  case forked = 12
  case closed = 13
  case notFound = 14
  case state = 15
  case tooLarge = 16
  case system = 17
  case end = 18
}
