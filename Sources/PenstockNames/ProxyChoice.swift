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

  private struct Variable {
    let name: StaticString
    let text: ByteView

    /// nil: the variable is not set, or is empty.
    init?(_ name: StaticString) {
      guard let text = ProxyChoice.value(name) else { return nil }
      self.name = name
      self.text = text
    }
  }

  /// The variable that counts. "HTTP_PROXY" is not looked at, because a CGI program gets the header "Proxy" of a request
  /// under that name.
  private static func variable(_ hasTLS: Bool) -> Variable? {
    Variable("grpc_proxy")
      ?? (hasTLS ? Variable("https_proxy") ?? Variable("HTTPS_PROXY") : Variable("http_proxy"))
      ?? Variable("all_proxy") ?? Variable("ALL_PROXY")
  }

  private static func inEnvironment(_ hasTLS: Bool, _ others: ProxyExceptions) -> Found {
    var exceptions = others
    if let list = value("no_grpc_proxy") ?? value("no_proxy") ?? value("NO_PROXY"),
      !exceptions.add(list: list)
    {
      return .noMemory
    }
    guard let variable = variable(hasTLS) else { return .proxy(nil) }
    switch Proxy.parse(variable.text, needsScheme: false) {
    case .proxy(var proxy):
      proxy.exceptions = exceptions
      return .proxy(proxy)
    case .noMemory: return .noMemory
    case .failed(let words):
      return .failed(
        ByteBuffer().say("the environment variable \"").say(variable.name).say("\" is no proxy: ").say(words))
    }
  }

  /// The value of an environment variable; nil: it is not set, or is empty.
  private static func value(_ name: StaticString) -> ByteView? {
    let pointer = UnsafeRawPointer(name.utf8Start).assumingMemoryBound(to: CChar.self)
    guard let text = getenv(pointer), text.pointee != 0 else { return nil }
    return ByteView(start: text, count: strlen(text))
  }
}
