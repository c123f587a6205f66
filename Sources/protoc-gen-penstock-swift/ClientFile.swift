#if SwiftProtobuf
  import SwiftProtobuf
  import SwiftProtobufPluginLibrary

  /// The clients for the services of one .proto file.
  struct ClientFile {
    /// The file's content.
    private(set) var text: String
    private let file: FileDescriptor
    private let parameters: Parameters
    private let namer: SwiftProtobufNamer

    init(_ file: FileDescriptor, _ parameters: Parameters) throws {
      text = ""
      self.file = file
      self.parameters = parameters
      namer = SwiftProtobufNamer(currentFile: file, protoFileToModuleMappings: parameters.modules)
      try refuseCollisions()
      var printer = CodePrinter(addNewlines: true)
      printer.print(
        """
        // DO NOT EDIT.
        // swift-format-ignore-file
        // swiftlint:disable all
        //
        // Made by protoc-gen-penstock-swift from \(file.name).

        """)
      for module in (["Penstock"] + messageModules).sorted() {
        printer.print("\(parameters.importing) \(module)")
      }
      for service in file.services { client(service, &printer) }
      text = printer.content
    }

    /// The modules of the messages, without the file's own.
    private var messageModules: [String] {
      let messages = file.services.flatMap(\.methods).flatMap { [$0.inputType!, $0.outputType!] }
      return Set(messages.compactMap { namer.mappings.moduleName(forFile: $0.file) })
        .filter { $0 != namer.targetModule }
    }

    /// A message or an enum may have the name of a client, or of the module that the clients use.
    private func refuseCollisions() throws {
      let clients = Set(file.services.map { Names($0, namer).client })
      for each in [file] + file.dependencies {
        let types =
          each.messages.map { (namer.fullName(message: $0), $0.fullName) }
          + each.enums.map { (namer.fullName(enum: $0), $0.fullName) }
        for (type, said) in types where clients.contains(type) || type == "Penstock" {
          let other = type == "Penstock" ? "the module Penstock" : "a client of \(file.name)"
          throw Fault(
            "\(each.name): \(said) and \(other) would both be \(type); the option swift_prefix gives others names"
          )
        }
      }
    }

    private func client(_ service: ServiceDescriptor, _ printer: inout CodePrinter) {
      let names = Names(service, namer)
      let access = parameters.access
      printer.print("")
      comment(service.protoSourceComments(), "A client of \(service.fullName).", &printer)
      if service.options.deprecated || file.options.deprecated { deprecated(&printer) }
      printer.print("nonisolated \(access)struct \(names.client): Sendable {")
      printer.withIndentation { printer in
        printer.print(
          """
          /// The full name of the service.
          \(access)static let serviceName = "\(service.fullName)"

          /// The methods of the service, for calls by `Channel.call`, and with their paths for interceptors.
          nonisolated \(access)enum \(names.methods) {
          """)
        printer.withIndentation { printer in
          for (method, name) in zip(service.methods, names.functions) {
            if method.options.deprecated { deprecated(&printer) }
            printer.print(
              """
              \(access)static let \(name) = Penstock.Method<
                \(namer.fullName(message: method.inputType)), \(namer.fullName(message: method.outputType))
              >.protobuf("/\(service.fullName)/\(method.name)")
              """)
          }
        }
        printer.print(
          """
          }

          /// The channel of the calls.
          \(access)let channel: Penstock.Channel

          /// Makes a client, whose calls are those of a channel.
          \(access)init(_ channel: Penstock.Channel) {
            self.channel = channel
          }
          """)
        for (method, name) in zip(service.methods, names.functions) {
          function(method, name, names, &printer)
        }
      }
      printer.print("}")
    }

    private func function(
      _ method: MethodDescriptor, _ name: String, _ names: Names, _ printer: inout CodePrinter
    ) {
      let request = namer.fullName(message: method.inputType)
      let response = namer.fullName(message: method.outputType)
      let (sendsMany, receivesMany) = (method.clientStreaming, method.serverStreaming)
      let kind =
        switch (sendsMany, receivesMany) {
        case (false, false): "unary"
        case (true, false): "clientStream"
        case (false, true): "serverStream"
        case (true, true): "bidi"
        }
      let argument = sendsMany ? "requests" : "request"
      let generic = sendsMany ? "<\(names.requests): AsyncSequence & Sendable>" : ""
      let condition = sendsMany ? " where \(names.requests).Element == \(request)" : ""
      let result = receivesMany ? "Penstock.Responses<\(response)>" : response
      printer.print("")
      comment(method.protoSourceComments(), "Calls \(method.service.fullName)/\(method.name).", &printer)
      if method.options.deprecated { deprecated(&printer) }
      printer.print(
        """
        \(parameters.access)func \(name)\(generic)(
          _ \(argument): \(sendsMany ? names.requests : request), options: Penstock.CallOptions = Penstock.CallOptions()
        ) async throws -> \(result)\(condition) {
        """)
      printer.withIndentation { printer in
        if let idempotency = idempotency(method) {
          printer.print("var options = options")
          printer.print("if options.idempotency == nil { options.idempotency = .\(idempotency) }")
        }
        printer.print(
          """
          return try await self.channel.\(kind)(
            \(names.methods).\(name).path, \(argument), as: \(response).self, options: options)
          """)
      }
      printer.print("}")
    }

    private func idempotency(_ method: MethodDescriptor) -> String? {
      switch method.options.idempotencyLevel {
      case .noSideEffects: "noSideEffects"
      case .idempotent: "idempotent"
      case .idempotencyUnknown: nil
      }
    }

    private func comment(_ said: String, _ usual: String, _ printer: inout CodePrinter) {
      printer.print(said.isEmpty ? "/// \(usual)\n" : said, newlines: false)
    }

    private func deprecated(_ printer: inout CodePrinter) {
      printer.print("@available(*, deprecated, message: \"marked as deprecated in \(file.name)\")")
    }
  }
#endif
