public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockNames
import PenstockClient

// The functions of connector.h: sockets that the program itself opens.

@_cdecl("penstock_channel_set_connector") @implementation
public func penstock_channel_set_connector(
  _ handle: OpaquePointer!, _ given: UnsafePointer<penstock_connector_functions>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  var functions: ConnectorFunctions?
  if let given {
    switch readTable(given, "functions") {
    case .refused(let failure): return failure.report(error)
    case .read(let table):
      let userData = UserData(table.user_data, table.finalizer)
      guard let connect = table.connect else {
        return report(.invalidArgument, "functions.connect must not be NULL", error)
      }
      functions = ConnectorFunctions(connect: connect, cancel: table.cancel, userData)
    }
  }
  guard let handle else { return report(.invalidArgument, "channel must not be NULL", error) }
  let channel = object(handle, ClientChannel.self)
  if Process.isForked(channel.generation) {
    return report(.forked, "the channel belongs to the parent of this process", error)
  }
  return report(channel.set(functions), "the channel or its runtime has been closed", error)
}

private func question(_ handle: OpaquePointer?) -> ConnectQuestion? {
  handle.map { object($0, ConnectQuestion.self) }
}

@_cdecl("penstock_connecting_address") @implementation
public func penstock_connecting_address(_ connecting: OpaquePointer!) -> UnsafePointer<CChar>! {
  question(connecting).map { cString($0.addressText) }
}

@_cdecl("penstock_connecting_sockaddr") @implementation
public func penstock_connecting_sockaddr(_ connecting: OpaquePointer!, _ length: UnsafeMutablePointer<Int>!)
  -> UnsafeRawPointer!
{
  guard let question = question(connecting) else { return nil }
  length?.pointee = question.addressBytes.count
  return question.addressBytes.view.baseAddress
}

@_cdecl("penstock_connecting_target") @implementation
public func penstock_connecting_target(_ connecting: OpaquePointer!) -> UnsafePointer<CChar>! {
  question(connecting).map { cString($0.target) }
}

@_cdecl("penstock_connecting_socket") @implementation
public func penstock_connecting_socket(
  _ connecting: OpaquePointer!, _ descriptor: Int32, _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let question = question(connecting) else {
    return report(.invalidArgument, "connecting must not be NULL", error)
  }
  switch question.take(descriptor: descriptor) {
  case .refused(let words): return Failure(.invalidArgument, words.view).report(error)
  case .outcome(.forked): return report(.forked, "the channel belongs to the parent of this process", error)
  case .outcome(.already): return report(.already, "the connector has answered before", error)
  case .outcome(let outcome): return report(outcome, "nobody waits for the socket any more", error)
  }
}

@_cdecl("penstock_connecting_decline") @implementation
public func penstock_connecting_decline(_ connecting: OpaquePointer!) -> penstock_result {
  (question(connecting)?.decline() ?? .invalidArgument).rawValue
}

@_cdecl("penstock_connecting_fail") @implementation
public func penstock_connecting_fail(_ connecting: OpaquePointer!, _ message: UnsafePointer<CChar>!)
  -> penstock_result
{
  let words = message.map { bytes($0) } ?? ByteView(start: nil, count: 0)
  guard let question = question(connecting), UTF8Repair.isValid(words) else {
    return PENSTOCK_E_INVALID_ARGUMENT
  }
  return question.fail(words).rawValue
}

@_cdecl("penstock_connecting_retain") @implementation
public func penstock_connecting_retain(_ connecting: OpaquePointer!) -> OpaquePointer! {
  question(connecting)?.hold()
  return retain(connecting, ConnectQuestion.self)
}

@_cdecl("penstock_connecting_release") @implementation
public func penstock_connecting_release(_ connecting: OpaquePointer!) {
  question(connecting)?.letGo()
  release(connecting, ConnectQuestion.self)
}
