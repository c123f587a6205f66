/// The four kinds of calls.
public enum CallKind: Int32, Sendable, CaseIterable {
  /// One request, one response.
  case unary
  /// Many requests, one response.
  case clientStream
  /// One request, many responses.
  case serverStream
  /// Many requests, many responses.
  case bidi

  /// Whether a call of this kind has exactly one response.
  public var hasOneResponse: Bool { self == .unary || self == .clientStream }
}
