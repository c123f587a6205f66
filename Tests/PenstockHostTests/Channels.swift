import Penstock

/// Runs `body` with a channel to a server of its own.
func withChannel(
  _ options: ChannelOptions = .cleartext, to given: Server? = nil, on runtime: Runtime? = nil,
  _ body: (Channel) async throws -> Void
) async throws {
  let server = try given ?? Server()
  let channel = try Channel(server.target, options: options, on: runtime)
  defer { channel.close() }
  try await body(channel)
}

extension CallOptions {
  /// Options whose metadata tells the server what to do.
  static func asking(_ metadata: Metadata) -> CallOptions { CallOptions(metadata: metadata) }
}
