import PenstockWire
import PenstockTransport
struct Script {
  enum Loaded { case loaded(Script), failed(ByteBuffer) }
  struct Section { var serves = false }
  static func load(_ path: ByteView) -> Loaded { .failed(Text("no")) }
  func section(for n: Int) -> Section? { nil }
}
final class Player: Source {
  init(_ loop: Loop, _ link: Link, _ section: Script.Section, number: Int, prints: Bool) {}
  func start() {}
}
