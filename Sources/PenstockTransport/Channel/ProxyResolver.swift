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
    fileprivate var isAsking = false

    fileprivate init(_ source: Resolver) { self.source = source }

    func resolved(_ outcome: ResolverOutcome) {
      self.outcome = outcome
      isAsking = false
      whole?.answered(self)
    }

    fileprivate func start() {
      outcome = nil
      isAsking = true
      source.start(self)
    }

    fileprivate func stop() {
      isAsking = false
      source.stop()
    }

    fileprivate func rest() { source.rest() }

    fileprivate func close() {
      whole = nil
      source.close()
    }
  }

  /// The most endpoints: so many servers and addresses of the proxy may have to be combined.
  private static let mostEndpoints = 1024

  /// The servers' addresses; nil: the proxy looks the target's name up.
  let servers: Part?
  private let proxies: Part
  private let proxy: Proxy
  /// The receiver of the endpoints; nil: nobody has asked yet.
  private var completion: (any ResolverCompletion)?

  /// `target`: finds the servers' addresses; nil: the proxy looks the target's name up.
  init(_ proxy: Proxy, target: Resolver?, _ runtime: Runtime) {
    self.proxy = proxy
    proxies = Part(Resolver.make(.name(host: proxy.host, port: proxy.port), services: nil, runtime))
    servers = target.map { Part($0) }
    super.init()
    proxies.whole = self
    servers?.whole = self
  }

  deinit {
    proxies.whole = nil
    servers?.whole = nil
  }

  override func start(_ completion: any ResolverCompletion) {
    self.completion = completion
    servers?.outcome = nil
    proxies.start()
    // The failure of a look-up that needs no time was passed on already.
    if case .failed? = proxies.outcome { return }
    servers?.start()
  }

  override func stop() {
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
  private func answered(_ part: Part) {
    guard let completion else { return }
    if case .failed(let words)? = part.outcome {
      stop()
      let name = Array(("the proxy " as StaticString).bytes) + Array(proxy.name.view) + [0x3A, 0x20]
      return completion.resolved(.failed(part === proxies ? name + words : words))
    }
    guard case .addresses(let ways)? = proxies.outcome else {
      // The program has given servers after a failure, which has ended the look-up of the proxy's name.
      if part !== proxies, !proxies.isAsking { proxies.start() }
      return
    }
    guard let servers else { return completion.resolved(.endpoints(ways.map { Endpoint($0, .named) }, nil)) }
    switch servers.outcome {
    case nil, .failed?: return
    case .addresses(let list)?: completion.resolved(.endpoints(combine(list.map { Endpoint($0) }, ways), nil))
    case .endpoints(let list, let service)?: completion.resolved(.endpoints(combine(list, ways), service))
    }
  }

  /// All servers by way of the first address of the proxy, then by way of the next one. A server that needs no proxy, or
  /// is no host on the network, such as a unix socket, is reached without it.
  private func combine(_ list: [Endpoint], _ ways: [SocketAddress]) -> [Endpoint] {
    var all: [Endpoint] = []
    for (index, way) in ways.enumerated() {
      for endpoint in list where all.count < ProxyResolver.mostEndpoints {
        if endpoint.address.bytes != nil, !proxy.exceptions.covers(endpoint.address) {
          all.append(endpoint.through(way))
        } else if index == 0 {
          all.append(endpoint)
        }
      }
    }
    return all
  }
}
