import Penstock
import Testing

/// A service config that sends a call again twice.
let threeAttempts = """
  {"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.01s",
    "maxBackoff": "0.01s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}
  """

extension ChannelOptions {
  static func retrying() -> ChannelOptions {
    var options = ChannelOptions.cleartext
    options.serviceConfig = threeAttempts
    return options
  }
}

/// Makes a call of a kind with some messages, and reads it to its end.
@discardableResult
func finish(
  _ channel: Channel, _ kind: CallKind, _ messages: [[UInt8]], _ options: CallOptions = CallOptions()
) async throws -> Status {
  let call = try channel.call(Method("/penstock.Echo/Bidi"), kind, options: options)
  do {
    for message in messages { try await call.send(message) }
    call.halfClose()
    for try await _ in call.responses {}
  } catch is RPCError {}
  return await call.status()
}

/// Makes a call whose answer does not come, and cancels it once it is on its way.
func cancelled(_ channel: Channel) async throws {
  let call = try channel.call(Method("/penstock.Echo/Bidi"), .bidi)
  try await call.send([1])
  _ = try await call.response()
  call.cancel()
  #expect(await call.status().code == .cancelled)
}

/// Makes a unary call that the server ends with a code.
@discardableResult
func fails(_ channel: Channel, with code: Status.Code, _ metadata: Metadata = [:]) async throws -> RPCError? {
  var metadata = metadata
  metadata["x-status"] = ["\(code.rawValue)"]
  metadata["x-message"] = ["as asked"]
  let options = CallOptions.asking(metadata)
  return await #expect(throws: RPCError.self) {
    try await channel.unary("/penstock.Echo/Unary", [1, 2, 3], options: options)
  }
}
