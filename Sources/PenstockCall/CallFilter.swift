import PenstockWire

/// Which calls an interceptor wants: by method and by kind.
public struct CallFilter {
  public let methods: MethodFilter
  /// The wanted kinds as a mask: bit k stands for the kind with raw value k. Never 0.
  public let kinds: UInt32

  /// `kinds` is a mask of the wanted kinds (bit k for raw value k); 0 stands for all kinds.
  public init(_ methods: MethodFilter = MethodFilter(), kinds: UInt32 = 0) {
    self.methods = methods
    self.kinds = kinds & 0xf == 0 ? 0xf : kinds & 0xf
  }

  public var matchesEverything: Bool { methods.matchesEverything && kinds == 0xf }

  public func matches(_ path: ByteView, _ kind: CallKind) -> Bool {
    kinds & (1 << UInt32(kind.rawValue)) != 0 && methods.matches(path)
  }
}

/// A list of method patterns, separated by commas. A pattern is a whole path, or the beginning of a path
/// followed by one star.
public struct MethodFilter {
  public let text: ByteBuffer?

  /// Matches every method.
  public init() { text = nil }

  /// Makes a filter from patterns. Returns nil if there is no method that one of the patterns could match.
  public init?(_ patterns: ByteBuffer) {
    text = patterns
    var canMatch = true
    forEachPattern { one in
      canMatch = MethodFilter.canMatch(one)
      return canMatch
    }
    guard canMatch else { return nil }
  }

  /// Whether there is a method that the pattern matches: it is one, or the beginning of one and a star.
  private static func canMatch(_ pattern: ByteView) -> Bool {
    guard let star = pattern.firstIndex(of: 0x2a) else { return Request.isValidPath(pattern) }
    return star == pattern.count - 1
      && (star == 0 || pattern[0] == 0x2f && pattern.allSatisfy { Request.isPathByte($0) })
  }

  public var matchesEverything: Bool {
    guard let text else { return true }
    return text.count == 1 && text.view[0] == 0x2a
  }

  public func matches(_ path: ByteView) -> Bool {
    guard text != nil else { return true }
    var found = false
    forEachPattern { one in
      if one[one.count - 1] == 0x2a {
        found =
          path.count >= one.count - 1
          && bytesEqual(
            ByteView(rebasing: path[0..<one.count - 1]), ByteView(rebasing: one[0..<one.count - 1]))
      } else {
        found = bytesEqual(path, one)
      }
      return !found
    }
    return found
  }

  /// Calls `body` with each pattern, without the spaces around the pattern, until `body` returns false.
  private func forEachPattern(_ body: (ByteView) -> Bool) {
    guard let text else { return }
    let view = text.view
    var start = 0
    while start <= view.count {
      var end = start
      while end < view.count, view[end] != 0x2c { end += 1 }
      var first = start
      var last = end
      while first < last, view[first] == 0x20 { first += 1 }
      while last > first, view[last - 1] == 0x20 { last -= 1 }
      guard body(ByteView(rebasing: view[first..<last])) else { return }
      start = end + 1
    }
  }
}
