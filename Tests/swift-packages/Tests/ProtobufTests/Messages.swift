import SwiftProtobuf

/// `message Named { string name = 1; }`: the request of helloworld.Greeter, as protoc-gen-swift would have it.
struct Named: SwiftProtobuf.Message, _MessageImplementationBase, _ProtoNameProviding, Sendable, Hashable {
  static let protoMessageName = "helloworld.HelloRequest"
  static let _protobuf_nameMap = _NameMap(bytecode: "\0\u{1}name\0")

  var name = ""
  var unknownFields = UnknownStorage()

  init() {}
  init(_ name: String) { self.name = name }

  mutating func decodeMessage<D: Decoder>(decoder: inout D) throws {
    while let number = try decoder.nextFieldNumber() {
      if number == 1 { try decoder.decodeSingularStringField(value: &name) }
    }
  }

  func traverse<V: Visitor>(visitor: inout V) throws {
    if !name.isEmpty { try visitor.visitSingularStringField(value: name, fieldNumber: 1) }
    try unknownFields.traverse(visitor: &visitor)
  }

  static func == (one: Named, other: Named) -> Bool {
    one.name == other.name && one.unknownFields == other.unknownFields
  }
}

/// `message Greeting { string message = 1; }`: the response of helloworld.Greeter.
struct Greeting: SwiftProtobuf.Message, _MessageImplementationBase, _ProtoNameProviding, Sendable, Hashable {
  static let protoMessageName = "helloworld.HelloReply"
  static let _protobuf_nameMap = _NameMap(bytecode: "\0\u{1}message\0")

  var message = ""
  var unknownFields = UnknownStorage()

  init() {}

  mutating func decodeMessage<D: Decoder>(decoder: inout D) throws {
    while let number = try decoder.nextFieldNumber() {
      if number == 1 { try decoder.decodeSingularStringField(value: &message) }
    }
  }

  func traverse<V: Visitor>(visitor: inout V) throws {
    if !message.isEmpty { try visitor.visitSingularStringField(value: message, fieldNumber: 1) }
    try unknownFields.traverse(visitor: &visitor)
  }

  static func == (one: Greeting, other: Greeting) -> Bool {
    one.message == other.message && one.unknownFields == other.unknownFields
  }
}
