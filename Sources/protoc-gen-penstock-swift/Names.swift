#if SwiftProtobuf
  import SwiftProtobufPluginLibrary

  /// The names in the client of one service.
  struct Names {
    /// The client's type.
    let client: String
    /// The functions, in the order of the methods.
    let functions: [String]
    /// The type in the client that has its methods, and the type of a stream's requests. No message is hidden by them.
    let methods: String
    let requests: String

    init(_ service: ServiceDescriptor, _ namer: SwiftProtobufNamer) {
      client = namer.typePrefix(forFile: service.file) + service.name + "Client"
      let messages = Set(
        service.methods.flatMap { [$0.inputType, $0.outputType] }.map { message in
          String(namer.fullName(message: message!).prefix { $0 != "." })
        })
      methods = Self.free("Methods", messages)
      requests = Self.free("Requests", messages)
      let usual = service.methods.map { NamingUtils.toLowerCamelCase($0.name) }
      // Names that differ only in case or underscores stay as they are in the .proto file.
      functions = zip(service.methods, usual).map { method, name in
        Self.sanitized(usual.count { $0 == name } == 1 ? name : method.name)
      }
    }

    private static func free(_ name: String, _ taken: Set<String>) -> String {
      taken.contains(name) ? free(name + "_", taken) : name
    }

    private static func sanitized(_ name: String) -> String {
      if ["init", "self", "channel", "Methods", "Type", "Protocol"].contains(name)
        || name.allSatisfy({ $0 == "_" })
      {
        return name + "_"
      }
      let isKeyword =
        swiftKeywordsUsedInDeclarations.contains(name) || swiftKeywordsUsedInStatements.contains(name)
        || swiftKeywordsUsedInExpressionsAndTypes.contains(name)
      return isKeyword ? "`\(name)`" : name
    }
  }
#endif
