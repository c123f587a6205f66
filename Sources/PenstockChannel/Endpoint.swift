import PenstockWire

/// A server of a name: its address, and what the resolver says of it.
public struct Endpoint {
  public let address: SocketAddress
  /// How many calls it gets beside the others, for a balancer that goes by weights.
  public var weight: UInt32 = 1
  public var attributes: EndpointAttributes?

  public init(_ address: SocketAddress) { self.address = address }

  /// The endpoints with the families of their addresses in turn, beginning with that of the first (RFC 8305 section 4).
  /// Of several with one address the first counts.
  public static func interleaved(_ list: [Endpoint]) -> [Endpoint] {
    guard let first = list.first else { return [] }
    var same: [Endpoint] = []
    var others: [Endpoint] = []
    for endpoint in list {
      if endpoint.address.family != first.address.family {
        if !others.contains(where: { $0.address == endpoint.address }) { others.append(endpoint) }
      } else if !same.contains(where: { $0.address == endpoint.address }) {
        same.append(endpoint)
      }
    }
    var all: [Endpoint] = []
    for index in 0..<max(same.count, others.count) {
      if index < same.count { all.append(same[index]) }
      if index < others.count { all.append(others[index]) }
    }
    return all
  }
}

/// Words that a resolver has for an endpoint, such as its zone. Never changed after they were added.
public final class EndpointAttributes {
  private var all: [(name: ByteBuffer, value: ByteBuffer)] = []

  public init() {}

  public func add(_ name: ByteBuffer, _ value: ByteBuffer) { all.append((name, value)) }

  /// The value of the attribute of this name; nil: there is none.
  public func find(_ name: ByteView) -> ByteBuffer? {
    for one in all where bytesEqual(one.name.view, name) { return one.value }
    return nil
  }
}
