import PenstockChannel
import PenstockWire
import PenstockLoop
import PenstockNames
import PenstockHTTP

/// The addresses of a channel's target. This object calls the resolver when `ResolveState` demands it. It
/// keeps the last good answer, which stays valid when a later look-up fails. As a timer, it fires at the time
/// that `ResolveState` has set.
final class Names: Timer, ResolverCompletion {
  private let runtime: Runtime
  private let resolver: Resolver
  private let name: ByteBuffer
  private let policy: ResolveState.Policy
  private unowned(unsafe) let owner: ChannelCore
  private var state = ResolveState()
  private var known: [Endpoint] = []
  /// The reason of the last failure; nil: the last look-up has not failed.
  private var failure: ByteBuffer?
  /// The number of look-ups that have ended.
  private var answers = 0

  init(_ resolver: Resolver, of name: ByteBuffer, _ policy: ResolveState.Policy, _ owner: ChannelCore) {
    runtime = owner.runtime
    self.resolver = resolver
    self.name = name
    self.policy = policy
    self.owner = owner
    super.init()
  }

  /// Asks for addresses. If addresses are known, the owner gets them within this call. A new look-up gives
  /// its addresses later, or also within this call if the resolver has them at once.
  func ask() {
    let before = answers
    follow(.ask)
    if answers == before, !known.isEmpty { owner.named(known) }
  }

  /// Looks the addresses up again, for an owner that already has the known addresses.
  func refresh() { follow(.ask) }

  /// Called when no addresses are wanted any more. Ends the present look-up, and stops the timer.
  func rest() {
    follow(.rest)
    resolver.rest()
  }

  func close() {
    rest()
    resolver.close()
  }

  func resetBackoff() { follow(.reset) }

  /// Called in a forked child, in which the parent's look-ups do not exist. The next look-up begins as soon
  /// as addresses are wanted. The functions of a resolver of the user's program are not called here, because
  /// no callback may run yet; `endInherited` calls them.
  func becomeChild() {
    follow(.rest)
    state = ResolveState()
  }

  /// Ends the parent's request for addresses. Called in a forked child when callbacks may run.
  func endInherited() { resolver.rest() }

  private func follow(_ event: ResolveState.Event) {
    var actions = state.handle(event, policy, now: runtime.now, random: runtime.platform.random())
    while let action = actions.next() {
      switch action {
      case .start:
        owner.note(.resolving)
        resolver.start(self)
      case .stop: resolver.stop()
      case .giveUp:
        resolver.stop()
        tellFailure(ByteBuffer().say("the name of ").say(name.view).say(" did not resolve in time"))
      case .arm(let time): runtime.arm(self, at: time)
      case .disarm: runtime.disarm(self)
      }
    }
  }

  func resolved(_ outcome: ResolverOutcome) {
    answers &+= 1
    switch outcome {
    case .addresses(let list): found(list.map { Endpoint($0) })
    case .endpoints(let list, let service):
      owner.serve(service)
      found(list)
    case .failed(let words):
      follow(.failed)
      tellFailure(ByteBuffer().say("the name of ").say(name.view).say(" does not resolve: ").say(words))
    }
  }

  private func found(_ list: [Endpoint]) {
    known = list
    failure = nil
    owner.note(.resolved, nil, ByteBuffer().say(list.count).say(list.count == 1 ? " address" : " addresses"))
    follow(.answered)
    owner.named(list)
  }

  var view: NameView {
    var view = NameView(addresses: known.count, isAsking: false, failure: failure, next: nil)
    switch state.phase {
    case .idle: break
    case .asking: view.isAsking = true
    case .waiting(let until): view.next = until
    }
    return view
  }

  /// Reports to the owner that a look-up has failed. If the name was resolved before, its last good addresses
  /// stay.
  private func tellFailure(_ words: ByteBuffer) {
    failure = words
    owner.note(.unresolved, nil, words)
    if known.isEmpty { owner.nameless(words) } else { owner.named(known) }
  }

  override func fire() { follow(.time) }
}
