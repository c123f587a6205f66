import PenstockCall
import PenstockChannel
import PenstockWire
import Synchronization
import PenstockLoop
import PenstockLink

/// The callbacks of the resolver in the user's program. Each may be nil.
public struct ResolverFunctions {
  public typealias Function = @convention(c) (UnsafeMutableRawPointer?) -> Void

  public let resolve: Function?
  public let stop: Function?
  public let userData: UserData

  public init(resolve: Function?, stop: Function?, _ userData: UserData) {
    self.resolve = resolve
    self.stop = stop
    self.userData = userData
  }
}

/// A resolver in the user's program. The program may give addresses at any time, and the channel uses the
/// most recent ones. The callback `resolve` only tells the program that addresses are wanted. Driving thread
/// only.
final class ProgramResolver: Resolver {
  let handle: ResolverHandle
  private let runtime: Runtime
  /// The callbacks; nil: the channel is closed, or has another resolver.
  private var functions: ResolverFunctions?
  /// The receiver of the addresses, from `join` until `close`.
  private var owner: (any ResolverCompletion)?
  private var latest: ResolverOutcome?
  /// Whether addresses are wanted: `resolve` was called after the last `stop`.
  private var isWanted = false

  init(_ functions: ResolverFunctions, _ runtime: Runtime) {
    self.functions = functions
    self.runtime = runtime
    handle = ResolverHandle(runtime)
    super.init()
    handle.join(self)
  }

  /// Makes `owner` the receiver of the addresses from now on.
  func join(_ owner: any ResolverCompletion) {
    self.owner = owner
    // `latest` has the addresses that were given before `join`.
    if let latest { owner.resolved(latest) }
    handle.deliver()
  }

  override func start(_ completion: any ResolverCompletion) {
    isWanted = true
    run(functions?.resolve)
    if let latest { completion.resolved(latest) }
  }

  override func rest() {
    guard isWanted else { return }
    isWanted = false
    run(functions?.stop)
  }

  override func close() {
    handle.close()
    rest()
    functions = nil
    owner = nil
    latest = nil
  }

  func tell(_ news: ResolverOutcome) {
    latest = news
    owner?.resolved(news)
  }

  private func run(_ function: ResolverFunctions.Function?) {
    guard let function, let functions else { return }
    function(functions.userData.pointer)
    runtime.mark.isStale = true
  }
}

/// The object of a penstock_resolver handle. It takes addresses or failures for a channel, on any thread.
/// Until the driving thread sees them, a later result replaces an earlier one.
public final class ResolverHandle: InboxItem, @unchecked Sendable {
  public let generation = Process.generation
  private let runtime: Runtime
  private let lock = Lock()
  /// The resolver; nil: it is closed.
  private var resolver: ProgramResolver?
  private var news: ResolverOutcome?

  fileprivate init(_ runtime: Runtime) {
    self.runtime = runtime
    super.init()
  }

  public func push(_ news: ResolverOutcome) -> Outcome {
    if Process.isForked(generation) { return .forked }
    let isOpen = lock.withLock { () -> Bool in
      if resolver != nil { self.news = news }
      return resolver != nil
    }
    if !isOpen || runtime.closed.load(ordering: .acquiring) { return .closed }
    runtime.post(self)
    return .ok
  }

  fileprivate func join(_ resolver: ProgramResolver) { self.resolver = resolver }

  fileprivate func close() {
    let dropped = lock.withLock { () -> (ProgramResolver?, ResolverOutcome?) in (resolver.take(), news.take())
    }
    withExtendedLifetime(dropped) {}
  }

  public override func run() { deliver() }

  /// Passes the most recent result to the resolver. Called on the driving thread.
  fileprivate func deliver() {
    let (resolver, news) = lock.withLock { (self.resolver, self.news.take()) }
    if let resolver, let news { resolver.tell(news) }
  }
}
