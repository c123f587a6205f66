import PenstockChannel
import PenstockLoop
import PenstockNames
import PenstockWire

/// The endpoints of a channel with a proxy: the proxy's addresses, if the proxy looks the target's name up; otherwise
/// each of the servers' addresses by way of each of the proxy's. Driving thread only.
final class ProxyResolver: Resolver {
  /// One of the two questions, and the last answer to it.
  final class Part: ResolverCompletion {
    private let source: Resolver
    fileprivate unowned(unsafe) var whole: ProxyResolver?
    /// nil: the answer has not come yet.
    fileprivate var outcome: ResolverOutcome?

    fileprivate init(_ source: Resolver) { self.source = source }

    func resolved(_ outcome: ResolverOutcome) {
      self.outcome = outcome
      whole?.tell()
    }

    fileprivate func start() {
      outcome = nil
      source.start(self)
    }

    fileprivate func stop() { source.stop() }
    fileprivate func rest() { source.rest() }

    fileprivate func close() {
      whole = nil
      source.close()
    }
  }

  /// The servers' addresses; nil: the proxy looks the target's name up.
  let servers: Part?
  private let proxies: Part
  private let name: ByteBuffer
  /// The receiver of the endpoints; nil: nobody has asked yet.
  private var completion: (any ResolverCompletion)?

  /// `target`: finds the servers' addresses; nil: the proxy looks the target's name up.
  init(_ proxy: Proxy, target: Resolver?, _ runtime: Runtime) {
    name = proxy.name
    proxies = Part(Resolver.make(.name(host: proxy.host, port: proxy.port), services: nil, runtime))
    servers = target.map { Part($0) }
    super.init()
    proxies.whole = self
    servers?.whole = self
  }

  override func start(_ completion: any ResolverCompletion) {
    self.completion = nil
    servers?.start()
    proxies.start()
    self.completion = completion
    tell()
  }

  override func stop() {
    completion = nil
    servers?.stop()
    proxies.stop()
  }

  override func rest() {
    servers?.rest()
    proxies.rest()
  }

  override func close() {
    completion = nil
    servers?.close()
    proxies.close()
  }

  /// Passes the endpoints on as soon as both answers are there, and again when the program gives other servers. A
  /// failure is passed on at once, and ends the look-ups.
  private func tell() {
    guard let completion else { return }
    let given: ResolverOutcome
    switch (proxies.outcome, servers.map { $0.outcome }) {
    case (.failed(let words)?, _):
      given = .failed(Array(("the proxy " as StaticString).bytes) + Array(name.view) + [0x3A, 0x20] + words)
    case (_, .some(.failed(let words)?)): given = .failed(words)
    case (nil, _), (_, .some(nil)): return
    case (.addresses(let list)?, nil): given = .endpoints(list.map { Endpoint($0, .named) }, nil)
    case (.endpoints(let list, _)?, nil): given = .endpoints(list.map { Endpoint($0.address, .named) }, nil)
    case (let proxies?, .some(.addresses(let list)?)):
      given = .endpoints(combine(list.map { Endpoint($0) }, proxies), nil)
    case (let proxies?, .some(.endpoints(let list, let service)?)):
      given = .endpoints(combine(list, proxies), service)
    }
    if case .failed = given { stop() }
    completion.resolved(given)
  }

  /// Each server by way of each address of the proxy. A server that is no host on the network, such as a unix socket, is
  /// reached without the proxy.
  private func combine(_ list: [Endpoint], _ proxies: ResolverOutcome) -> [Endpoint] {
    let ways: [SocketAddress]
    switch proxies {
    case .addresses(let list): ways = list
    case .endpoints(let list, _): ways = list.map { $0.address }
    case .failed: ways = []
    }
    var all: [Endpoint] = []
    for endpoint in list {
      if endpoint.address.bytes == nil {
        all.append(endpoint)
      } else {
        all += ways.map { endpoint.through($0) }
      }
    }
    return all
  }
}
