import CSystem
import PenstockWire

/// The proxy that a channel's options name.
public enum ProxyChoice {
  case none
  case given(Proxy)
  /// The proxy that the environment variables of the process name.
  case environment

  public enum Found {
    /// nil: the channel needs no proxy.
    case proxy(Proxy?)
    case failed(ByteBuffer)
    case noMemory
  }

  /// Finds the proxy for a channel to `host`. `exceptions`: the hosts that need no proxy, besides those of the
  /// environment.
  public func find(host: ByteView, hasTLS: Bool, _ exceptions: ProxyExceptions) -> Found {
    if exceptions.covers(host) { return .proxy(nil) }
    switch self {
    case .none: return .proxy(nil)
    case .given(let proxy): return .proxy(proxy)
    case .environment: return ProxyChoice.inEnvironment(host, hasTLS)
    }
  }

  /// The names of the variables, in the order in which they count. "HTTP_PROXY" is not among them, because a CGI program
  /// gets the header "Proxy" of a request under that name.
  private static func variables(_ hasTLS: Bool) -> [StaticString] {
    hasTLS
      ? ["grpc_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
      : ["grpc_proxy", "http_proxy", "all_proxy", "ALL_PROXY"]
  }

  private static func inEnvironment(_ host: ByteView, _ hasTLS: Bool) -> Found {
    var exceptions = ProxyExceptions()
    for name in ["no_grpc_proxy", "no_proxy", "NO_PROXY"] as [StaticString] {
      guard let list = value(name) else { continue }
      guard exceptions.add(list: list) else { return .noMemory }
      break
    }
    if exceptions.covers(host) { return .proxy(nil) }
    for name in variables(hasTLS) {
      guard let text = value(name) else { continue }
      switch Proxy.parse(text) {
      case .proxy(let proxy): return .proxy(proxy)
      case .noMemory: return .noMemory
      case .failed(let words):
        return .failed(
          ByteBuffer().say("the environment variable \"").say(name).say("\" is no proxy: ").say(words))
      }
    }
    return .proxy(nil)
  }

  /// The value of an environment variable; nil: it is not set, or is empty.
  private static func value(_ name: StaticString) -> ByteView? {
    let pointer = UnsafeRawPointer(name.utf8Start).assumingMemoryBound(to: CChar.self)
    guard let text = getenv(pointer), text.pointee != 0 else { return nil }
    return ByteView(start: text, count: strlen(text))
  }
}
