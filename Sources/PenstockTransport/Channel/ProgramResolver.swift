import PenstockCall
import PenstockChannel
import PenstockWire
import Synchronization

/// The callbacks of the program's own resolver; each may be nil.
public struct ResolverFunctions {
  public typealias Function = @convention(c) (UnsafeMutableRawPointer?) -> Void

  let resolve: Function?
  let stop: Function?
  let userData: UserData

  public init(resolve: Function?, stop: Function?, _ userData: UserData) {
    self.resolve = resolve
    self.stop = stop
    self.userData = userData
  }
}

/// A resolver of the program. It gives addresses at any time, and the channel uses the latest ones. `resolve`
/// only tells the program that addresses are wanted. Driving thread only.
final class ProgramResolver: Resolver {
  let handle: ResolverHandle
  private let runtime: Runtime
  /// Nil once the channel has closed, or has another resolver.
  private var functions: ResolverFunctions?
  /// The receiver of news, from `join` to `close`.
  private var owner: (any ResolverCompletion)?
  private var latest: ResolverOutcome?
  /// Whether addresses are wanted: `resolve` was called last, and not `stop`.
  private var isWanted = false

  @inline(never) @_optimize(size)
  init(_ functions: ResolverFunctions, _ runtime: Runtime) {
    self.functions = functions
    self.runtime = runtime
    handle = ResolverHandle(runtime)
    super.init()
    handle.join(self)
  }

  /// Makes `owner` the receiver of news from now on.
  @inline(never) @_optimize(size)
  func join(_ owner: any ResolverCompletion) {
    self.owner = owner
    // News that came before `join` is in `latest`.
    if let latest { owner.resolved(latest) }
    handle.deliver()
  }

  @inline(never) @_optimize(size)
  override func start(_ completion: any ResolverCompletion) {
    isWanted = true
    run(functions?.resolve)
    if let latest { completion.resolved(latest) }
  }

  @inline(never) @_optimize(size)
  override func rest() {
    guard isWanted else { return }
    isWanted = false
    run(functions?.stop)
  }

  @inline(never) @_optimize(size)
  override func close() {
    handle.close()
    rest()
    functions = nil
    owner = nil
    latest = nil
  }

  @inline(never) @_optimize(size)
  func tell(_ news: ResolverOutcome) {
    latest = news
    owner?.resolved(news)
  }

  @inline(never) @_optimize(size)
  private func run(_ function: ResolverFunctions.Function?) {
    guard let function, let functions else { return }
    function(functions.userData.pointer)
    runtime.watch.hasRun = true
  }
}

/// The object of a penstock_resolver handle: takes news for a channel, on any thread. Of news that the driving thread has
/// not seen yet only the latest are kept.
public final class ResolverHandle: InboxItem, @unchecked Sendable {
  public let generation = Process.generation
  private let runtime: Runtime
  private let lock = Lock()
  /// Nil once the resolver is closed.
  private var resolver: ProgramResolver?
  private var news: ResolverOutcome?

  @inline(never) @_optimize(size)
  fileprivate init(_ runtime: Runtime) {
    self.runtime = runtime
    super.init()
  }

  @inline(never) @_optimize(size)
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

  @inline(never) @_optimize(size)
  fileprivate func close() {
    let dropped = lock.withLock { () -> (ProgramResolver?, ResolverOutcome?) in (resolver.take(), news.take())
    }
    withExtendedLifetime(dropped) {}
  }

  public override func run() { deliver() }

  /// Passes the latest news to the resolver, on the driving thread.
  @inline(never) @_optimize(size)
  fileprivate func deliver() {
    let (resolver, news) = lock.withLock { (self.resolver, self.news.take()) }
    if let resolver, let news { resolver.tell(news) }
  }
}
