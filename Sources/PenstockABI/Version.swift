import CPenstockLibraries
import CPenstockMemory
import CPenstockVersion
import PenstockJSON
import PenstockWire

/// The library's version, as version.h has it, and those of the libraries below it.
enum Version {
  static var text: UnsafePointer<CChar> { penstock_version_text() }
  static var bytes: ByteView { view(text) }

  static func json() -> JSON.Object {
    JSON.object { object in
      object.set("version", JSON.string(bytes))
      let libraries = JSON.object { libraries in
        for index in 0..<PENSTOCK_LIBRARIES {
          let library = penstock_library_at(index)
          let facts = JSON.object {
            $0.set("version", JSON.string(view(library.version)))
            $0.set("inside", JSON.bool(penstock_library_is_inside(index) != 0))
          }
          libraries.set(view(library.name), facts.value)
        }
      }
      object.set("libraries", libraries.value)
    }
  }

  private static func view(_ text: UnsafePointer<CChar>) -> ByteView {
    ByteView(start: text, count: Int(strlen(text)))
  }
}
