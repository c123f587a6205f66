import PenstockCall
import PenstockWire

/// The settings that a service config has for the calls of a method. A setting that is nil is left to the
/// call's own options.
public struct MethodConfig: Equatable, Sendable {
  public var waitsForReady: Bool?
  /// The time from the call's creation to its deadline, in nanoseconds. If the call's own deadline is
  /// earlier, that one counts.
  public var timeout: UInt64?
  public var maxRequestBytes: Int?
  public var maxResponseBytes: Int?
  public var retry: MethodRetry?

  public init() {}
}

/// The configs of methods, by name. The most specific config counts: that of the method, otherwise that of
/// its service, otherwise that of all services.
public struct MethodConfigs {
  /// The names: "/service/method", or "/service/" for all methods of the service, or "" for all services. There may be many
  /// for one config. The value is the config's index in `configs`. A copy shares the table, so names are added before.
  private let names = NameTable()
  private var configs: [MethodConfig] = []
  /// The name that is being added.
  private let name = ByteBuffer()
  /// Whether any method has a retry policy.
  public private(set) var haveRetries = false

  public init() {}

  public var isEmpty: Bool { configs.isEmpty }

  /// Adds the config of a method. An empty `method` stands for all methods of the service, and an empty
  /// `service` for all services. Returns `.already` if there is a config for this name.
  public mutating func add(
    _ config: MethodConfig, service: ByteView, method: ByteView
  ) -> NameTable.Added {
    name.removeAll(keepingCapacity: true)
    if !service.isEmpty {
      guard name.append("/"), name.append(service), name.append("/"), name.append(method) else {
        return .noMemory
      }
    }
    let isKnown = configs.last == config
    let added = names.add(name.view, UInt32(isKnown ? configs.count - 1 : configs.count))
    guard added == .added else { return added }
    if !isKnown { configs.append(config) }
    if config.retry != nil { haveRetries = true }
    return .added
  }

  /// The config of the calls with this path; nil: there is none.
  public func find(_ path: ByteView) -> MethodConfig? {
    if let whole = known(path) { return whole }
    if let slash = path.lastIndex(of: 0x2F), slash > 0,
      let service = known(ByteView(rebasing: path[...slash]))
    {
      return service
    }
    return known(ByteView(start: nil, count: 0))
  }

  private func known(_ name: ByteView) -> MethodConfig? {
    names.value(of: name).map { configs[Int($0)] }
  }
}
