import PenstockCall
import PenstockWire

/// What a service config says of the calls of a method. What is nil is as the call says.
public struct MethodConfig: Equatable, Sendable {
  public var waitsForReady: Bool?
  /// The time from the call's creation to its deadline, in nanoseconds; the call's own may be shorter.
  public var timeout: UInt64?
  public var maxRequestBytes: Int?
  public var maxResponseBytes: Int?

  public init() {}
}

/// The configs of methods by their names. The most specific name wins: the method's, then the service's, then the one
/// of all.
public struct MethodConfigs {
  /// A path "/service/method", or "/service/" for all methods of the service, or "" for all services.
  private struct Entry {
    let name: ByteBuffer
    let config: MethodConfig
  }

  /// Sorted by name.
  private var entries: [Entry] = []

  public init() {}

  public var isEmpty: Bool { entries.isEmpty }

  /// Adds the config of a method; without a method that of a service, and without a service that of all. `.already`:
  /// the name has one.
  public mutating func add(_ config: MethodConfig, service: ByteView, method: ByteView) -> Outcome {
    let name = ByteBuffer()
    if !service.isEmpty {
      guard name.append("/"), name.append(service), name.append("/"), name.append(method) else {
        return .noMemory
      }
    }
    let place = place(of: name.view)
    if place < entries.count, bytesEqual(entries[place].name.view, name.view) { return .already }
    entries.insert(Entry(name: name, config: config), at: place)
    return .ok
  }

  /// The config of the calls with this path.
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

  /// The index of the first entry whose name is not less than `name`.
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
