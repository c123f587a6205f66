import PenstockWire

// The functions by which a callback uses the call's settings. Any callback may read them. on_start may change
// them. on_status may change them if its hop may RESTART, which then sends the changed ones.

extension Hop {
  /// The settings as the running callback sees them.
  public var settings: CallSettings {
    get { shown({ $0.settings }, kept: { $0.settings }) }
  }

  public var labels: RequestLabels? { shown({ $0.labels }, kept: { $0.labels }) }
  /// The authority, followed by a NUL; nil: the channel's default authority.
  public var authority: ByteBuffer? { labels?.authority }

  public func changeSettings(_ change: (inout CallSettings) -> Void) -> Outcome {
    editStart { start in
      change(&start.settings)
      return .ok
    }
  }
}

extension Request {
  /// Sets the call's credentials to one "authorization" field; nil removes them. The value may contain
  /// visible ASCII and spaces.
  public func setCredentials(_ authorization: ByteView?) -> Outcome {
    guard let authorization else {
      settings.credentials = nil
      return .ok
    }
    return Request.withCredentials(authorization) { settings.credentials = $0 }
  }

  /// Calls `body` with read-only metadata that has one field, "authorization".
  public static func withCredentials(_ authorization: ByteView, _ body: (Metadata) -> Void) -> Outcome {
    guard !authorization.isEmpty, HeaderRules.isValidASCIIValue(authorization) else {
      return .invalidArgument
    }
    let fields = Metadata()
    guard fields.add(("authorization" as StaticString).bytes, authorization) == .ok else { return .noMemory }
    fields.isReadOnly = true
    body(fields)
    return .ok
  }
}
