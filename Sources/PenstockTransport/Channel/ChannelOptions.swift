import PenstockWire

/// The part of channel.h's "options" about the transport; the ABI parses JSON into it. Defaults of calls (deadline, message
/// limits, compression) travel with each call's `Request`.
public struct ChannelOptions {
  /// nil: cleartext.
  public var tls: TLSOptions? = TLSOptions() {
    didSet { usesDefaultTLS = false }
  }
  /// Nobody has said anything of TLS: a unix socket does without.
  private(set) var usesDefaultTLS = true
  /// Replaces the target's authority.
  public var authority: ByteBuffer?
  /// Put before "penstock/VERSION".
  public var userAgent: ByteBuffer?
  /// The library's; bytes that live for ever.
  public var version = ("0" as StaticString).bytes
  public var maxHeaderListBytes = 16384
  public var connectTimeout: UInt64 = 20_000_000_000
  /// 65535 to 2147483647.
  public var initialStreamWindow = 1 << 20
  public var initialConnectionWindow = 4 << 20

  public init() {}
}
