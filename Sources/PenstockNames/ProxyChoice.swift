import CPenstockSystem
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

  /// Finds the proxy for a channel to `target`. `exceptions`: the hosts that need no proxy, besides those of the
  /// environment.
  public func find(_ target: Target, hasTLS: Bool, _ exceptions: ProxyExceptions) -> Found {
    let found: Found
    switch self {
    case .none: return .proxy(nil)
    case .given(var proxy):
      proxy.exceptions = exceptions
      found = .proxy(proxy)
    case .environment: found = ProxyChoice.inEnvironment(hasTLS, exceptions)
    }
    // The addresses of a target that has no name are judged one by one.
    if case .proxy(let proxy?) = found, case .name(let host, let port) = target.location,
      proxy.exceptions.covers(host.view, port: port)
    {
      return .proxy(nil)
    }
    return found
  }

  /// The names of the variables, in the order in which they count. "HTTP_PROXY" is not among them, because a CGI program
  /// gets the header "Proxy" of a request under that name.
  private static func variables(_ hasTLS: Bool) -> [StaticString] {
    hasTLS
      ? ["grpc_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
      : ["grpc_proxy", "http_proxy", "all_proxy", "ALL_PROXY"]
  }

  private static func inEnvironment(_ hasTLS: Bool, _ others: ProxyExceptions) -> Found {
    var exceptions = others
    for name in ["no_grpc_proxy", "no_proxy", "NO_PROXY"] as [StaticString] {
      guard let list = value(name) else { continue }
      guard exceptions.add(list: list) else { return .noMemory }
      break
    }
    for name in variables(hasTLS) {
      guard let text = value(name) else { continue }
      switch Proxy.parse(text, needsScheme: false) {
      case .proxy(var proxy):
        proxy.exceptions = exceptions
        return .proxy(proxy)
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
