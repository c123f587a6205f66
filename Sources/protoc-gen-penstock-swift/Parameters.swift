#if SwiftProtobuf
  import SwiftProtobufPluginLibrary

  /// A fault in the parameters or in a .proto file, in words; protoc prints it.
  struct Fault: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
  }

  /// The parameters of the command line, such as `--penstock-swift_opt=Visibility=Public`. Those that protoc-gen-swift has,
  /// too, have its names and values.
  struct Parameters {
    enum Visibility: String, CaseIterable {
      case `internal`, `package`, `public`
    }

    /// Where the files are that are made.
    enum FileNaming: String, CaseIterable {
      case fullPath, pathToUnderscores, dropPath

      /// The name of the file for "folder/name.proto".
      func fileName(for proto: String) -> String {
        let stem = proto.hasSuffix(".proto") ? String(proto.dropLast(6)) : proto
        let made: String =
          switch self {
          case .fullPath: stem
          case .pathToUnderscores: stem.split(separator: "/").joined(separator: "_")
          case .dropPath: stem.split(separator: "/").last.map(String.init) ?? stem
          }
        return made + ".penstock.swift"
      }
    }

    private(set) var visibility = Visibility.internal
    private(set) var fileNaming = FileNaming.fullPath
    private(set) var modules = ProtoFileToModuleMappings()
    private(set) var usesAccessLevelOnImports = false

    init(_ pairs: [(key: String, value: String)]) throws {
      for (name, value) in pairs {
        switch name {
        case "Visibility": visibility = try Self.value(name, value)
        case "FileNaming": fileNaming = try Self.value(name, value)
        case "ProtoPathModuleMappings":
          do {
            modules = try ProtoFileToModuleMappings(path: value)
          } catch {
            throw Fault("the parameter ProtoPathModuleMappings: \(value): \(error)")
          }
        case "UseAccessLevelOnImports":
          // A name without a value is true, as in protoc-gen-swift.
          let chosen: Switch = value.isEmpty ? .true : try Self.value(name, value)
          usesAccessLevelOnImports = chosen == .true
        default:
          throw Fault(
            "there is no parameter \(name); there are Visibility, FileNaming, ProtoPathModuleMappings and "
              + "UseAccessLevelOnImports")
        }
      }
    }

    private enum Switch: String, CaseIterable {
      case `true`, `false`
    }

    /// The value that `said` names, in capital letters or not, with underscores or not.
    private static func value<Value: RawRepresentable & CaseIterable>(
      _ name: String, _ said: String
    ) throws -> Value where Value.RawValue == String {
      func plain(_ text: String) -> String { text.lowercased().filter { $0 != "_" } }
      if let value = Value.allCases.first(where: { plain($0.rawValue) == plain(said) }) { return value }
      let known = Value.allCases.map { $0.rawValue.prefix(1).uppercased() + $0.rawValue.dropFirst() }
      throw Fault("the parameter \(name) is \"\(said)\"; it can be \(known.joined(separator: ", "))")
    }

    /// The words before a declaration.
    var access: String { visibility == .internal ? "" : "\(visibility.rawValue) " }
    /// The words before the import of a module whose types the declarations show.
    var importing: String { usesAccessLevelOnImports ? "\(visibility.rawValue) import" : "import" }
  }
#endif
