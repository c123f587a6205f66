import PenstockCall
import PenstockWire
import PenstockNames

/// One server of the name in a channel's target: its address, and what the resolver says about it. The object
/// never changes, except that `text` is made at its first use.
public final class Endpoint {
  /// The way from the client to the server.
  public enum Way: Equatable {
    /// The socket connects to the endpoint's address, which is the server's.
    case straight
    /// The socket connects to the proxy at this address, and the proxy to the endpoint's address, which is the server's.
    case through(SocketAddress)
    /// The endpoint's address is that of a proxy, which looks up the name of the channel's target.
    case named
  }

  public let address: SocketAddress
  public let way: Way
  /// The endpoint's share of the calls relative to other endpoints, for balancers that use weights.
  public let weight: UInt32
  /// A smaller number means that the endpoint is preferred: policies that spread calls use only the endpoints
  /// with the smallest number. nil: the resolver gives no priorities.
  public let priority: UInt16?
  /// The names and values of the endpoint's attributes, such as its zone: a name, its value, the next name,
  /// and so on. Each value ends with a NUL.
  private let attributes: [ByteBuffer]
  private var knownText: ByteBuffer?

  public init(
    _ address: SocketAddress, _ way: Way = .straight, weight: UInt32 = 1, priority: UInt16? = nil,
    attributes: [ByteBuffer] = []
  ) {
    self.address = address
    self.way = way
    self.weight = weight
    self.priority = priority
    self.attributes = attributes
  }

  /// The address, such as "192.0.2.1:443", followed by a NUL. It is made at the first use, so only the
  /// driving thread may use this.
  public var text: ByteBuffer {
    if let knownText { return knownText }
    let made = ByteBuffer().say(address.text())
    _ = made.append(byte: 0)
    knownText = made
    return made
  }

  /// The value of the attribute called `name`; nil: the endpoint has no such attribute.
  public func attribute(_ name: ByteView) -> ByteBuffer? {
    for index in stride(from: 0, to: attributes.count, by: 2) where bytesEqual(attributes[index].view, name) {
      return attributes[index + 1]
    }
    return nil
  }

  /// This endpoint by way of the proxy at the address `proxy`.
  public func through(_ proxy: SocketAddress) -> Endpoint {
    Endpoint(address, .through(proxy), weight: weight, priority: priority, attributes: attributes)
  }

  /// The address that a socket has to connect to.
  public var nearest: SocketAddress {
    switch way {
    case .straight, .named: address
    case .through(let proxy): proxy
    }
  }

  /// Whether connections to the other endpoint are connections to this one.
  public func isSame(as other: Endpoint) -> Bool { address == other.address && way == other.way }

  public func meets(_ wish: EndpointWish) -> Bool {
    attribute(wish.name.view).map { bytesEqual($0.view, wish.value.view) } ?? false
  }

  /// Orders the endpoints of each priority so that IPv4 and IPv6 alternate, beginning with the family of the
  /// first endpoint (RFC 8305 section 4). If several endpoints have the same address, only the first is kept.
  /// With `onlyFirstPriority` only the endpoints of the most preferred priority are kept.
  public static func interleaved(_ list: [Endpoint], onlyFirstPriority: Bool = false) -> [Endpoint] {
    var all: [Endpoint] = []
    var index = 0
    while index < list.count, !onlyFirstPriority || all.isEmpty {
      let first = list[index]
      var same: [Endpoint] = []
      var others: [Endpoint] = []
      while index < list.count, list[index].priority == first.priority {
        let endpoint = list[index]
        index += 1
        if endpoint.isAmong(all) { continue }
        if endpoint.address.family == first.address.family {
          if !endpoint.isAmong(same) { same.append(endpoint) }
        } else if !endpoint.isAmong(others) {
          others.append(endpoint)
        }
      }
      for index in 0..<max(same.count, others.count) {
        if index < same.count { all.append(same[index]) }
        if index < others.count { all.append(others[index]) }
      }
    }
    return all
  }

  private func isAmong(_ list: [Endpoint]) -> Bool {
    for other in list where other.isSame(as: self) { return true }
    return false
  }
}
