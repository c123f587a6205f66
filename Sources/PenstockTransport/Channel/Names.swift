import PenstockChannel
import PenstockWire

/// The addresses of a channel's target. This object asks the resolver when `ResolveState` says so, and keeps
/// the last good answer, which stays valid when a later look-up fails. As a timer, it fires at the time for
/// which `ResolveState` has asked.
final class Names: Timer, ResolverCompletion {
  private let runtime: Runtime
  private let resolver: Resolver
  private let name: ByteBuffer
  private let policy: ResolveState.Policy
  private unowned(unsafe) let owner: ChannelCore
  private var state = ResolveState()
  private var known: [Endpoint] = []
  /// How many look-ups have ended.
  private var answers = 0

  @inline(never) @_optimize(size)
  init(_ resolver: Resolver, of name: ByteBuffer, _ policy: ResolveState.Policy, _ owner: ChannelCore) {
    runtime = owner.runtime
    self.resolver = resolver
    self.name = name
    self.policy = policy
    self.owner = owner
    super.init()
  }

  /// Asks for addresses. If addresses are known, the owner gets them from within this function. The addresses
  /// of a new look-up come later; if the resolver has them at once, they also come from within this function.
  @inline(never) @_optimize(size)
  func ask() {
    let before = answers
    follow(.ask)
    if answers == before, !known.isEmpty { owner.named(known) }
  }

  /// Asks for addresses again. The owner already has the known ones.
  func refresh() { follow(.ask) }

  /// Called when no addresses are wanted any more: ends a look-up, and stops the timer.
  @inline(never) @_optimize(size)
  func rest() {
    follow(.rest)
    resolver.rest()
  }

  @inline(never) @_optimize(size)
  func close() {
    rest()
    resolver.close()
  }

  @inline(never) @_optimize(size)
  func resetBackoff() { follow(.reset) }

  /// Called in a forked child, in which the parent's look-ups do not exist: the next look-up begins as soon
  /// as addresses are wanted. A resolver of the program is not told to stop here, because no callback may run
  /// now; `endInherited` tells it.
  func becomeChild() {
    follow(.rest)
    state = ResolveState()
  }

  /// Ends the parent's request for addresses; called in the child once callbacks may run.
  func endInherited() { resolver.rest() }

  @inline(never) @_optimize(size)
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

  @inline(never) @_optimize(size)
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

  @inline(never) @_optimize(size)
  private func found(_ list: [Endpoint]) {
    known = list
    follow(.answered)
    owner.named(list)
  }

  /// Tells the owner that a look-up has failed. A name that no longer resolves keeps its last good addresses.
  @inline(never) @_optimize(size)
  private func tellFailure(_ words: ByteBuffer) {
    owner.note(.unresolved, nil, words)
    if known.isEmpty { owner.nameless(words) } else { owner.named(known) }
  }

  @inline(never) @_optimize(size)
  override func fire() { follow(.time) }
}
