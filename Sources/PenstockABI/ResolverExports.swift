public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockChannel
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockNames
import PenstockClient

// The functions of resolver.h: names that the program itself resolves.

@_cdecl("penstock_channel_set_resolver") @implementation
public func penstock_channel_set_resolver(
  _ handle: OpaquePointer!, _ given: UnsafePointer<penstock_resolver_functions>!,
  _ resolver: UnsafeMutablePointer<OpaquePointer?>!, _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  var functions = ResolverFunctions(resolve: nil, stop: nil, UserData(nil, nil))
  if let given {
    switch readTable(given, "functions") {
    case .refused(let failure): return failure.report(error)
    case .read(let table):
      functions = ResolverFunctions(
        resolve: table.resolve, stop: table.stop, UserData(table.user_data, table.finalizer))
    }
  }
  guard let handle, let resolver else {
    return report(.invalidArgument, "channel and resolver must not be NULL", error)
  }
  let channel = object(handle, ClientChannel.self)
  if Process.isForked(channel.generation) {
    return report(.forked, "the channel belongs to the parent of this process", error)
  }
  let outcome = channel.setResolver(functions) { resolver.pointee = retained($0) }
  return report(outcome, "the channel or its runtime has been closed", error)
}

@_cdecl("penstock_resolver_push") @implementation
public func penstock_resolver_push(
  _ handle: OpaquePointer!, _ snapshot: UnsafePointer<CChar>!, _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let handle, let snapshot else {
    return report(.invalidArgument, "resolver and snapshot must not be NULL", error)
  }
  let resolver = object(handle, ResolverHandle.self)
  var news: ResolverOutcome?
  if let failure = JSONReader.parse(bytes(snapshot), { readSnapshot($0) { news = $0 } }) {
    return failure.report(error)
  }
  guard let news else { return report(.noMemory, "no memory", error) }
  switch resolver.push(news) {
  case .forked: return report(.forked, "the resolver belongs to the parent of this process", error)
  case let outcome: return report(outcome, "the channel has closed, or has another resolver", error)
  }
}

@_cdecl("penstock_resolver_retain") @implementation
public func penstock_resolver_retain(_ resolver: OpaquePointer!) -> OpaquePointer! {
  retain(resolver, ResolverHandle.self)
}

@_cdecl("penstock_resolver_release") @implementation
public func penstock_resolver_release(_ resolver: OpaquePointer!) { release(resolver, ResolverHandle.self) }

// MARK: - The JSON of a snapshot

private let mostAddresses = 1024

private func readSnapshot(_ reader: JSONReader, _ into: (ResolverOutcome) -> Void) -> Failure? {
  var endpoints: [Endpoint]?
  var service: ServiceConfig?
  var words: ByteBuffer?
  let failure = reader.members { key, member in
    switch key {
    case "addresses":
      var list: [Endpoint] = []
      let failure = member.elements { one in
        if list.count == mostAddresses { return member.fail("at most 1024 addresses", hasType: true) }
        return readEndpoint(one) { list.append($0) }
      }
      endpoints = list
      return failure
        ?? (list.isEmpty ? member.fail("at least one address (or else \"error\")", hasType: true) : nil)
    case "service_config": return readServiceConfig(member) { service = $0 }
    case "error":
      return member.string { words = $0 }
    default: return member.unknown
    }
  }
  if let failure { return failure }
  guard (endpoints == nil) != (words == nil), words == nil || service == nil else {
    return reader.fail("an object with either \"addresses\" or only \"error\"", hasType: true)
  }
  if let endpoints {
    into(.endpoints(endpoints, service))
  } else if let words {
    into(.failed([UInt8](words.view)))
  }
  return nil
}

private func readEndpoint(_ reader: JSONReader, _ into: (Endpoint) -> Void) -> Failure? {
  var address: SocketAddress?
  var weight: UInt32 = 1
  var attributes: [ByteBuffer] = []
  let failure = reader.members { key, member in
    switch key {
    case "address":
      address = member.string.flatMap { SocketAddress(target: $0) }
      return address == nil
        ? member.fail(
          "an address, such as \"ipv4:192.0.2.1:443\" or \"unix:/path\"", hasType: member.string != nil) : nil
    case "weight": return member.count(1...65535) { weight = UInt32($0) }
    case "attributes":
      return member.members { name, value in
        guard let name = ByteBuffer(copying: name) else { return Failure(.noMemory, "no memory") }
        return value.string {
          _ = $0.append(byte: 0)
          attributes.append(name)
          attributes.append($0)
        }
      }
    default: return member.unknown
    }
  }
  if let failure { return failure }
  guard let address else { return reader.fail(because: ("it has no \"address\"" as StaticString).bytes) }
  into(Endpoint(address, weight: weight, attributes: attributes))
  return nil
}
