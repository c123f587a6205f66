import PenstockCall
import PenstockWire
import PenstockTransport

/// The interceptors of a channel and of its runtime that have an `on_connection` callback, sorted by
/// priority.
final class ConnectionListeners: NewsListeners {
  private let runtime: ClientRuntime
  private let chains: ChannelChains
  /// The channel's target, with a NUL at its end.
  private let target: ByteBuffer
  private let teller: ClientChannel.Teller

  init(
    _ runtime: ClientRuntime, _ chains: ChannelChains, _ target: ByteBuffer,
    _ teller: @escaping ClientChannel.Teller
  ) {
    self.runtime = runtime
    self.chains = chains
    self.target = target
    self.teller = teller
  }

  override var isAnybody: Bool {
    chains.merged(with: runtime).contains { $0.registration.onConnection != nil }
  }

  override func tell(_ news: ConnectionNews) {
    for entry in chains.merged(with: runtime) where entry.registration.onConnection != nil {
      teller(news, entry.registration, target)
    }
  }
}
