import PenstockWire

/// A server of a name: its address, and what the resolver says of it. Never changed.
public final class Endpoint {
  public let address: SocketAddress
  /// How many calls it gets beside the others, for a balancer that goes by weights.
  public let weight: UInt32
  /// The names and values of its attributes in turn, such as its zone.
  private let attributes: [ByteBuffer]

  public init(_ address: SocketAddress, weight: UInt32 = 1, attributes: [ByteBuffer] = []) {
    self.address = address
    self.weight = weight
    self.attributes = attributes
  }

  /// The value of the attribute of this name; nil: there is none.
  public func attribute(_ name: ByteView) -> ByteBuffer? {
    for index in stride(from: 0, to: attributes.count, by: 2) where bytesEqual(attributes[index].view, name) {
      return attributes[index + 1]
    }
    return nil
  }

  /// The endpoints in an order in which IPv4 and IPv6 alternate, beginning with the family of the first (RFC 8305 section 4).
  /// Of several with one address the first counts.
  public static func interleaved(_ list: [Endpoint]) -> [Endpoint] {
    var same: [Endpoint] = []
    var others: [Endpoint] = []
    for endpoint in list {
      if endpoint.address.family == list[0].address.family {
        endpoint.join(&same)
      } else {
        endpoint.join(&others)
      }
    }
    var all: [Endpoint] = []
    for index in 0..<max(same.count, others.count) {
      if index < same.count { all.append(same[index]) }
      if index < others.count { all.append(others[index]) }
    }
    return all
  }

  @inline(never)
  private func join(_ list: inout [Endpoint]) {
    for other in list where other.address == address { return }
    list.append(self)
  }
}
