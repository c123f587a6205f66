import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockLink
import PenstockClient
import PenstockTickets

/// Keeps the token, the open request for the next one, and the calls that wait for it.
public final class TokenStore: @unchecked Sendable {
  public typealias Source = @convention(c) (UInt64, UnsafePointer<CChar>?, UnsafeMutableRawPointer?) -> Void

  private struct Token {
    let number: UInt64
    let text: ByteBuffer
    let expiresAt: UInt64
    var refreshAt: UInt64
  }

  let options: BearerToken.Options
  let number = TokenRequests.newNumber()
  private let source: Source
  private let userData: UserData
  private let lock = Lock()
  private var token: Token?
  private var refused: ByteBuffer?
  /// The number of the request that has no answer yet; 0: none.
  private var open: UInt64 = 0
  private var openedAt: UInt64 = 0
  /// The platform of the call for which the open request was made. Its clock counts the answer's lifetime,
  /// because the answer comes without a call. nil: no request is open.
  private var asked: Platform?
  /// The value of `Process.forks` when the request was made. If it is different now, this process is a forked
  /// child, in which nobody answers the parent's request.
  private var openedIn: UInt32 = 0
  private var count: UInt64 = 0
  private var waiting: [TokenUse] = []

  init(_ options: BearerToken.Options, _ source: @escaping Source, _ userData: UserData) {
    self.options = options
    self.source = source
    self.userData = userData
  }

  /// Forgets the token of a call because the server has refused it. Returns false if the call had no token
  /// from this store.
  func refuse(_ use: TokenUse) -> Bool {
    lock.lock()
    defer { lock.unlock() }
    // Only the refused token is forgotten: there may be a newer one by now.
    if let token, token.number == use.number {
      refused = token.text
      self.token = nil
    }
    return use.number > 0
  }

  /// Returns the token for a call. If there is none, the call is added to the waiting calls with `ticket`,
  /// unless `ticket` is 0. Also returns the number of a request that the caller now has to make with `ask`;
  /// 0: none.
  func take(_ use: TokenUse, _ ticket: UInt64, by platform: Platform) -> (ByteBuffer?, UInt64) {
    let now = platform.clock()
    lock.lock()
    defer { lock.unlock() }
    var text: ByteBuffer?
    var isWanted = false
    if let token, now < token.expiresAt {
      use.number = token.number
      text = token.text
      isWanted = now >= token.refreshAt
    } else if ticket != 0 {
      use.ticket = ticket
      waiting.append(use)
      isWanted = true
    }
    // If the source has not answered in time, it is asked again, with a new request.
    let isLate = options.refreshTimeout > 0 && now - min(now, openedAt) >= options.refreshTimeout
    guard isWanted, open == 0 || isLate || openedIn != Process.forks else { return (text, 0) }
    openedIn = Process.forks
    count += 1
    open = count
    openedAt = now
    asked = platform
    return (text, open)
  }

  func ask(_ number: UInt64) {
    let sent = lock.withLock { refused }
    let shown = sent.flatMap { Request.terminated(ByteView(rebasing: $0.view[options.prefix.count...])) }
    let text = shown?.view.baseAddress?.assumingMemoryBound(to: CChar.self)
    source(self.number << 32 | number, text, userData.pointer)
    withExtendedLifetime(shown) {}
  }

  /// Nanoseconds since 1970, by the clock of the call for which the open request was made; nil: no request is open.
  var wallClock: UInt64? { lock.withLock { asked }?.wallClock() }

  func leave(_ use: TokenUse) { lock.withLock { waiting.drop(use) } }

  // MARK: - The answer, on any thread

  /// Stores the token that answers the request numbered `number`, and lets the waiting calls go on with it.
  /// `lifetime` is in nanoseconds; nil: the token does not expire.
  func complete(_ number: UInt64, _ text: ByteBuffer, _ lifetime: UInt64?) -> Outcome {
    let (outcome, served) = answer(number) { now in
      let (expiresAt, isEndless) = now.addingReportingOverflow(lifetime ?? UInt64.max)
      let early = min(options.refreshEarly, (lifetime ?? 0) / 2)
      return Token(
        number: number, text: text, expiresAt: isEndless ? UInt64.max : expiresAt,
        refreshAt: isEndless ? UInt64.max : expiresAt - early)
    }
    for (ticket, metadata, isRefused) in served {
      if metadata.set(options.header.view, text.view) == .ok {
        _ = Tickets.resolve(ticket, .verdict(isRefused ? .restart : .next))
      } else {
        _ = Tickets.resolve(ticket, .finish(Status(.resourceExhausted, "no memory for the token")))
      }
    }
    return outcome
  }

  func fail(_ number: UInt64, _ status: Status) -> Outcome {
    let (outcome, served) = answer(number) { _ in nil }
    for (ticket, _, isRefused) in served {
      _ = Tickets.resolve(ticket, isRefused ? .verdict(.next) : .finish(status.copy()))
    }
    return outcome
  }

  /// Closes the request, stores the token that `make` makes for the present time (nil: the source has failed),
  /// and returns the waiting calls. Fails if the request is not open: it was answered
  /// already, a newer request has replaced it, or there was never such a request.
  private func answer(_ number: UInt64, _ make: (UInt64) -> Token?)
    -> (Outcome, [(UInt64, Metadata, isRefused: Bool)])
  {
    lock.lock()
    defer { lock.unlock() }
    guard number != 0, open == number, let now = asked?.clock() else {
      return (number == 0 || number > count ? .gone : .already, [])
    }
    open = 0
    asked = nil
    if let fresh = make(now) {
      token = fresh
      refused = nil
    } else {
      // The old token may still be valid, so the next request is made at least one second later.
      token?.refreshAt = now + 1_000_000_000
    }
    var served: [(UInt64, Metadata, isRefused: Bool)] = []
    for use in waiting {
      use.number = number
      if let metadata = use.metadata { served.append((use.ticket, metadata, use.isRefused)) }
    }
    waiting = []
    return (.ok, served)
  }
}
