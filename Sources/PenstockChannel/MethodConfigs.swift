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

  public init() {}
}

/// The configs of methods, by name. The most specific config counts: that of the method, otherwise that of
/// its service, otherwise that of all services.
public struct MethodConfigs {
  /// A config with its name: "/service/method", or "/service/" for all methods of the service, or "" for all services.
  private final class Entry {
    let name: ByteBuffer
    let config: MethodConfig

    init(_ name: ByteBuffer, _ config: MethodConfig) {
      self.name = name
      self.config = config
    }
  }

  /// The entries, sorted by name.
  private var entries: [Entry] = []

  public init() {}

  public var isEmpty: Bool { entries.isEmpty }

  /// Adds the config of a method. An empty `method` stands for all methods of the service, and an empty
  /// `service` for all services. Returns `.already` if there is a config for this name.
  public mutating func add(_ config: MethodConfig, service: ByteView, method: ByteView) -> Outcome {
    let name = ByteBuffer()
    if !service.isEmpty {
      guard name.append("/"), name.append(service), name.append("/"), name.append(method) else {
        return .noMemory
      }
    }
    let place = place(of: name.view)
    if place < entries.count, bytesEqual(entries[place].name.view, name.view) { return .already }
    entries.append(Entry(name, config))
    var last = entries.count - 1
    while last > place {
      entries.swapAt(last, last - 1)
      last -= 1
    }
    return .ok
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
    let place = place(of: name)
    guard place < entries.count, bytesEqual(entries[place].name.view, name) else { return nil }
    return entries[place].config
  }

  /// The index of the first entry whose name is not less than `name`, by binary search.
  private func place(of name: ByteView) -> Int {
    var low = 0
    var high = entries.count
    while low < high {
      let middle = (low + high) / 2
      if entries[middle].name.view.lexicographicallyPrecedes(name) { low = middle + 1 } else { high = middle }
    }
    return low
  }
}
