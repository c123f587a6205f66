import PenstockWire

/// Which address is tried next, and until when. No I/O, no clock.
///
/// ```
/// --resolved(n)--> address 0 --failed--> address 1 ... --failed--> exhausted
/// ```
/// All addresses share one timeout: each gets an equal part of the time left, so that one that never answers
/// cannot use up the time of the others.
public struct ConnectPlan: Equatable {
  public enum Step: Equatable {
    case connect(index: Int, until: UInt64)
    case exhausted
  }

  public let deadline: UInt64
  public private(set) var index = -1
  public private(set) var count = 0

  public init(now: UInt64, timeout: UInt64) {
    let (sum, overflow) = now.addingReportingOverflow(timeout)
    deadline = overflow ? .max : sum
  }

  /// The addresses have come, `count` of them: gives the first step.
  public mutating func resolved(_ count: Int, now: UInt64) -> Step {
    self.count = count
    index = -1
    return next(now)
  }

  /// The present address has failed: gives the next step.
  public mutating func failed(now: UInt64) -> Step { next(now) }

  private mutating func next(_ now: UInt64) -> Step {
    index += 1
    guard index < count, now < deadline else { return .exhausted }
    return .connect(index: index, until: now + (deadline - now) / UInt64(count - index))
  }
}

/// The reasons why the addresses of a plan failed, in words.
public struct ConnectReport {
  private let report = ByteBuffer()
  private var first: ByteBuffer?
  private var told = 0
  private static let mostTold = 8

  public init() {}

  public mutating func failed(_ address: ByteBuffer, _ words: ByteBuffer) {
    first = first ?? address
    if told == ConnectReport.mostTold { return }
    told += 1
    if !report.isEmpty { report.say("; ") }
    report.say(address.view).say(": ").say(words.view)
  }

  /// The error text: every address that was tried, with its error. If the target is itself the address, only the
  /// error.
  public func words(_ name: ByteBuffer, _ plan: ConnectPlan) -> ByteBuffer {
    var told = report.view
    if plan.count == 1, let first, ConnectReport.ends(name.view, with: first.view) {
      told = ByteView(rebasing: told.dropFirst(first.count + 2))
    }
    let text = ByteBuffer().say("could not connect to ").say(name.view).say(": ").say(told)
    let untold = min(plan.index, plan.count) - ConnectReport.mostTold
    if untold > 0 { text.say("; and ").say(untold).say(" more") }
    if plan.index < plan.count { text.say("; the connect timeout left no time for the rest") }
    return text
  }

  /// Whether a target names just this address, as "ipv4:127.0.0.1:1" names "127.0.0.1:1", and "unix:///a" "unix:/a".
  private static func ends(_ name: ByteView, with address: ByteView) -> Bool {
    let unix = ("unix:" as StaticString).bytes
    let isUnix =
      address.count > unix.count && bytesEqual(ByteView(rebasing: address.prefix(unix.count)), unix)
    let bare = ByteView(rebasing: address.dropFirst(isUnix ? unix.count : 0))
    return bytesEqual(ByteView(rebasing: name.suffix(bare.count)), bare)
  }
}
