// The plugin of protoc that makes typed clients of Penstock, beside the messages that protoc-gen-swift makes. It is in the
// same package as the library, so that its clients and the library fit together, and links nothing of the library.

#if SwiftProtobuf
  import CPenstockVersion
  import SwiftProtobuf
  import SwiftProtobufPluginLibrary

  /// Reads a request of protoc from standard input, and writes a client for each service to standard output.
  @main
  struct Generator: CodeGenerator {
    func generate(
      files: [FileDescriptor], parameter: any CodeGeneratorParameter,
      protoCompilerContext: any ProtoCompilerContext, generatorOutputs: any GeneratorOutputs
    ) throws {
      let parameters = try Parameters(parameter.parsedPairs)
      for file in files where !file.services.isEmpty {
        let clients = try ClientFile(file, parameters)
        try generatorOutputs.add(
          fileName: parameters.fileNaming.fileName(for: file.name), contents: clients.text)
      }
    }

    var supportedFeatures: [Google_Protobuf_Compiler_CodeGeneratorResponse.Feature] {
      [.proto3Optional, .supportsEditions]
    }
    var supportedEditionRange: ClosedRange<Google_Protobuf_Edition> { DescriptorSet.bundledEditionsSupport }
    var version: String? { String(cString: penstock_version_text()) }
  }
#else
  import Glibc

  /// Without the package trait SwiftProtobuf there is no library for plugins of protoc.
  @main
  struct Generator {
    static func main() {
      let words = "protoc-gen-penstock-swift has to be built with the package trait SwiftProtobuf\n"
      _ = write(STDERR_FILENO, words, words.utf8.count)
      exit(1)
    }
  }
#endif
