public import PenstockClient
public import PenstockTransport

/// The channel options of channel.h after they were read; the rows in Options.swift fill in this object.
public struct ParsedChannelOptions {
  public var transport = ChannelOptions()
  public var defaults = CallDefaults()
  public var newestFirst = false

  public init() {}
}
