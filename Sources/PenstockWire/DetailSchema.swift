/// The messages of google/rpc/error_details.proto: the numbers of their fields, and the names of the fields
/// in ProtoJSON.
public enum DetailSchema {
  case errorInfo, retryInfo, debugInfo, quotaFailure, preconditionFailure, badRequest, requestInfo,
    resourceInfo
  case help, localizedMessage
  case quotaViolation, preconditionViolation, fieldViolation, link, mapEntry

  public enum Kind {
    case string, strings
    case int
    /// A field `optional int64`: unlike other fields, it is passed on even if it was sent as zero.
    case presentInt
    /// A map<string, string>.
    case map
    case duration
    case message(DetailSchema)
    case messages(DetailSchema)
  }

  public struct Field {
    public let number: UInt32
    public let name: StaticString
    public let kind: Kind

    init(_ number: UInt32, _ name: StaticString, _ kind: Kind) {
      self.number = number
      self.name = name
      self.kind = kind
    }
  }

  /// The message that a type URL names; nil: it is not one of the ten error details here. The part of the URL
  /// behind its last `/` is the type's name (google/protobuf/any.proto).
  public init?(typeURL: ByteView) {
    var from = typeURL.count
    while from > 0 && typeURL[from &- 1] != 0x2F { from &-= 1 }
    if from == 0 { return nil }
    let package = ("google.rpc." as StaticString).bytes
    let name = slice(typeURL, from: from, to: typeURL.count)
    guard bytesEqual(slice(name, from: 0, to: package.count), package) else { return nil }
    self.init(name: slice(name, from: package.count, to: name.count))
  }

  /// The message of package google.rpc with this name; nil: it is not one of the ten error details.
  private init?(name: ByteView) {
    if bytesEqual(name, "ErrorInfo") {
      self = .errorInfo
    } else if bytesEqual(name, "RetryInfo") {
      self = .retryInfo
    } else if bytesEqual(name, "DebugInfo") {
      self = .debugInfo
    } else if bytesEqual(name, "QuotaFailure") {
      self = .quotaFailure
    } else if bytesEqual(name, "PreconditionFailure") {
      self = .preconditionFailure
    } else if bytesEqual(name, "BadRequest") {
      self = .badRequest
    } else if bytesEqual(name, "RequestInfo") {
      self = .requestInfo
    } else if bytesEqual(name, "ResourceInfo") {
      self = .resourceInfo
    } else if bytesEqual(name, "Help") {
      self = .help
    } else if bytesEqual(name, "LocalizedMessage") {
      self = .localizedMessage
    } else {
      return nil
    }
  }

  func field(numbered number: UInt32) -> Field? {
    var index = 0
    while let field = field(at: index) {
      if field.number == number { return field }
      index &+= 1
    }
    return nil
  }

  public func field(named name: ByteView) -> Field? {
    var index = 0
    while let field = field(at: index) {
      if bytesEqual(name, field.name) { return field }
      index &+= 1
    }
    return nil
  }

  /// The field at `index`, in the order of the field numbers; nil behind the last one.
  public func field(at index: Int) -> Field? {
    switch (self, index) {
    case (.errorInfo, 0): return Field(1, "reason", .string)
    case (.errorInfo, 1): return Field(2, "domain", .string)
    case (.errorInfo, 2): return Field(3, "metadata", .map)
    case (.retryInfo, 0): return Field(1, "retryDelay", .duration)
    case (.debugInfo, 0): return Field(1, "stackEntries", .strings)
    case (.debugInfo, 1): return Field(2, "detail", .string)
    case (.quotaFailure, 0): return Field(1, "violations", .messages(.quotaViolation))
    case (.quotaViolation, 0): return Field(1, "subject", .string)
    case (.quotaViolation, 1): return Field(2, "description", .string)
    case (.quotaViolation, 2): return Field(3, "apiService", .string)
    case (.quotaViolation, 3): return Field(4, "quotaMetric", .string)
    case (.quotaViolation, 4): return Field(5, "quotaId", .string)
    case (.quotaViolation, 5): return Field(6, "quotaDimensions", .map)
    case (.quotaViolation, 6): return Field(7, "quotaValue", .int)
    case (.quotaViolation, 7): return Field(8, "futureQuotaValue", .presentInt)
    case (.preconditionFailure, 0): return Field(1, "violations", .messages(.preconditionViolation))
    case (.preconditionViolation, 0): return Field(1, "type", .string)
    case (.preconditionViolation, 1): return Field(2, "subject", .string)
    case (.preconditionViolation, 2): return Field(3, "description", .string)
    case (.badRequest, 0): return Field(1, "fieldViolations", .messages(.fieldViolation))
    case (.fieldViolation, 0): return Field(1, "field", .string)
    case (.fieldViolation, 1): return Field(2, "description", .string)
    case (.fieldViolation, 2): return Field(3, "reason", .string)
    case (.fieldViolation, 3): return Field(4, "localizedMessage", .message(.localizedMessage))
    case (.requestInfo, 0): return Field(1, "requestId", .string)
    case (.requestInfo, 1): return Field(2, "servingData", .string)
    case (.resourceInfo, 0): return Field(1, "resourceType", .string)
    case (.resourceInfo, 1): return Field(2, "resourceName", .string)
    case (.resourceInfo, 2): return Field(3, "owner", .string)
    case (.resourceInfo, 3): return Field(4, "description", .string)
    case (.help, 0): return Field(1, "links", .messages(.link))
    case (.link, 0): return Field(1, "description", .string)
    case (.link, 1): return Field(2, "url", .string)
    case (.localizedMessage, 0): return Field(1, "locale", .string)
    case (.localizedMessage, 1): return Field(2, "message", .string)
    case (.mapEntry, 0): return Field(1, "key", .string)
    case (.mapEntry, 1): return Field(2, "value", .string)
    default: return nil
    }
  }
}
