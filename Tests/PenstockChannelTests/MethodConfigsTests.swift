import Glibc
import PenstockCall
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockChannel

/// The settings of methods, by the names in a service config (grpc-proto's service_config.proto,
/// `MethodConfig.Name`).
@Suite struct MethodConfigsTests {
  private func config(_ timeout: UInt64) -> MethodConfig {
    var config = MethodConfig()
    config.timeout = timeout
    return config
  }

  private func add(_ timeout: UInt64, _ service: String, _ method: String, to all: inout MethodConfigs)
    -> NameTable.Added
  {
    let service = bytes(service)
    let method = bytes(method)
    return all.add(config(timeout), service: service.view, method: method.view)
  }

  private func timeout(_ path: String, _ all: MethodConfigs) -> UInt64? {
    let path = bytes(path)
    return all.find(path.view)?.timeout
  }

  @Test func theMostSpecificNameWins() {
    var all = MethodConfigs()
    #expect(all.isEmpty && timeout("/a.B/C", all) == nil)
    #expect(add(1, "a.B", "C", to: &all) == .added)
    #expect(timeout("/a.B/C", all) == 1)
    #expect(timeout("/a.B/D", all) == nil)
    #expect(add(2, "a.B", "", to: &all) == .added)
    #expect(timeout("/a.B/C", all) == 1)
    #expect(timeout("/a.B/D", all) == 2)
    #expect(timeout("/a.BB/D", all) == nil)
    #expect(add(3, "", "", to: &all) == .added)
    #expect(timeout("/a.B/D", all) == 2)
    #expect(timeout("/a.BB/D", all) == 3)
    #expect(timeout("/a/b/c", all) == 3)
    #expect(!all.isEmpty)
  }

  @Test func noNameTwice() {
    var all = MethodConfigs()
    for (service, method) in [("s", "m"), ("s", ""), ("", "")] {
      #expect(add(1, service, method, to: &all) == .added)
      #expect(add(2, service, method, to: &all) == .already)
    }
    #expect(timeout("/s/m", all) == 1)
  }

  @Test func manyNames() {
    var all = MethodConfigs()
    for number in 0..<500 as Range<UInt64> {
      let number = number * 193 % 500
      #expect(add(number, "s\(number % 7)", "m\(number)", to: &all) == .added)
    }
    for number in 0..<500 as Range<UInt64> { #expect(timeout("/s\(number % 7)/m\(number)", all) == number) }
    #expect(timeout("/s0/m1", all) == nil && timeout("/s", all) == nil && timeout("/zzz/m", all) == nil)
  }
  /// The work grows with the number of names, and not with its square, which took a minute here.
  @Test func twoHundredThousandNames() {
    var all = MethodConfigs()
    let before = clock()
    for number in (0..<200_000 as Range<UInt64>).reversed() {
      guard add(number, "package.Service\(number % 100)", "Method\(number)", to: &all) == .added else {
        Issue.record("\(number)")
        return
      }
    }
    #expect((clock() - before) / CLOCKS_PER_SEC < 30)
    #expect(timeout("/package.Service99/Method199999", all) == 199_999)
    #expect(timeout("/package.Service0/Method0", all) == 0)
    #expect(add(1, "package.Service7", "Method7", to: &all) == .already)
  }
}
