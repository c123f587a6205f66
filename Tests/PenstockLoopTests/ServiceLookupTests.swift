import CPenstockSystem
import PenstockWire
import Synchronization
import PenstockTestSupport
import Testing

@testable import PenstockLoop
@testable import PenstockNames

/// Names in memory, for look-ups, which run on threads of their own.
private final class FakeNames: Platform {
  /// The SRV records by name, each with priority, weight, port and host.
  var records: [String: [(Int, Int, Int, String)]] = [:]
  /// The error code of an SRV look-up for a name without records.
  var code = EAI_NONAME
  var hosts: [String: [String]] = [:]
  /// Called when a host is looked up, before the answer.
  var asked: (String) -> Void = { _ in }
  let now = Atomic<UInt64>(0)

  override func clock() -> UInt64 { now.load(ordering: .relaxed) + super.clock() }

  override func services(
    of name: UnsafeRawPointer?, into answer: UnsafeMutableRawPointer?, _ size: Int32
  ) -> Int32 {
    guard let answer, let list = records[string(name)] else { return code }
    var bytes: [UInt8] = [0, 1, 0x81, 0x80, 0, 0, 0, UInt8(list.count), 0, 0, 0, 0]
    for (priority, weight, port, host) in list {
      var labels: [UInt8] = []
      for label in host.split(separator: ".") { labels += [UInt8(label.utf8.count)] + Array(label.utf8) }
      labels.append(0)
      bytes += [0, 0, 33, 0, 1, 0, 0, 0, 9, 0, UInt8(6 + labels.count)]
      for number in [priority, weight, port] { bytes += [UInt8(number >> 8), UInt8(number & 0xFF)] }
      bytes += labels
    }
    must(bytes.count <= Int(size), "room")
    bytes.withUnsafeBytes { answer.copyMemory(from: $0.baseAddress!, byteCount: $0.count) }
    return Int32(bytes.count)
  }

  override func addresses(of host: UnsafeRawPointer?, port: UInt16) -> LookupOutcome {
    let name = string(host)
    asked(name)
    guard let list = hosts[name] else { return .failed(Array("no such host".utf8)) }
    return .addresses(
      list.map { text in
        Array(text.utf8).withUnsafeBytes { SocketAddress(literal: $0, port: port)! }
      })
  }

  private func string(_ bytes: UnsafeRawPointer?) -> String {
    String(cString: bytes!.assumingMemoryBound(to: UInt8.self))
  }
}

private final class ServiceAnswer: LookupCompletion {
  let cell = WaitCell()
  /// The servers that the look-up has found, each as "ADDRESS priority PRIORITY weight WEIGHT".
  var servers: [String] = []
  var failure: String?

  func lookedUp(_ outcome: LookupOutcome) {
    switch outcome {
    case .addresses: failure = "addresses without priorities"
    case .servers(let list):
      servers = list.map { server in
        let address = String(decoding: server.address.text(), as: UTF8.self)
        return "\(address) priority \(server.priority) weight \(server.weight)"
      }
    case .failed(let text): failure = String(decoding: text, as: UTF8.self)
    }
    cell.set()
  }
}

extension RuntimeTests {
  @Suite struct ServiceLookupTests {
    private let names = FakeNames()

    private func runtime() -> Runtime {
      guard case .made(let runtime) = Runtime.make(Runtime.Options(), ClockMark(), names) else {
        fatalError("no runtime")
      }
      return runtime
    }

    private func start(_ runtime: Runtime, _ answer: ServiceAnswer, _ services: String, _ host: String)
      -> Lookup
    {
      let prefix = Array(services.utf8).withUnsafeBytes { ByteBuffer(copying: $0)! }
      return Array(host.utf8).withUnsafeBytes {
        Lookup.start(host: $0, port: 80, services: prefix, on: runtime, completion: answer)
      }
    }

    private func ask(_ services: String = "_grpc._tcp", _ host: String = "orders.example") -> ServiceAnswer {
      let runtime = runtime()
      let answer = ServiceAnswer()
      runtime.perform { _ = start(runtime, answer, services, host) }
      must(runtime.wait(for: answer.cell, deadline: nil, interruptible: false) == .ready, "answer")
      runtime.end()
      return answer
    }

    @Test func byPriorityWithShares() {
      names.records["_grpc._tcp.orders.example"] = [
        (2, 0, 50053, "c.example"), (1, 3, 50051, "a.example"), (3, 1, 50054, "gone.example"),
      ]
      names.hosts = ["a.example.": ["10.0.0.1", "::1"], "c.example.": ["10.0.0.3"]]
      let answer = ask()
      #expect(
        answer.servers == [
          "10.0.0.1:50051 priority 1 weight 24576", "[::1]:50051 priority 1 weight 24576",
          "10.0.0.3:50053 priority 2 weight 256",
        ])
    }

    @Test func theHostsOwnRecords() {
      names.records["orders.service.consul"] = [(1, 1, 20000, "node.example")]
      names.hosts = ["node.example.": ["10.0.0.1"]]
      #expect(ask("", "orders.service.consul").servers == ["10.0.0.1:20000 priority 1 weight 16384"])
    }

    @Test func anAddressIsNotLookedUp() {
      #expect(ask("_grpc._tcp", "10.0.0.1").failure == "addresses without priorities")
    }

    @Test func failuresInWords() {
      let name = "_grpc._tcp.orders.example"
      #expect(ask().failure == "\(name): no SRV record with a server")
      names.code = EAI_AGAIN
      #expect(ask().failure == "\(name): \(String(cString: gai_strerror(EAI_AGAIN)))")
      names.records[name] = []
      #expect(ask().failure == "\(name): no SRV record with a server")
      names.records[name] = [(0, 0, 0, "")]
      #expect(ask().failure == "\(name): no SRV record with a server")
      names.records[name] = [(0, 0, 0, ""), (1, 1, 1, "b.example")]
      #expect(ask().failure == "\(name): b.example.: no such host")
    }

    /// A cancelled look-up finishes the host that it is looking up, and looks up no further host.
    @Test func cancelled() {
      names.records["_grpc._tcp.orders.example"] = (1...50).map { ($0, 1, $0, "h\($0).example") }
      let runtime = runtime()
      let answer = ServiceAnswer()
      let count = Counter()
      let cell = WaitCell()
      let goOn = WaitCell()
      names.asked = { _ in
        count.up()
        cell.set()
        _ = runtime.wait(for: goOn, deadline: nil, interruptible: false)
      }
      let lookup = Box<Lookup?>(nil)
      runtime.perform { lookup.value = start(runtime, answer, "_grpc._tcp", "orders.example") }
      must(runtime.wait(for: cell, deadline: nil, interruptible: false) == .ready, "asked")
      runtime.perform { lookup.value?.cancel() }
      goOn.set()
      #expect(runtime.shutdown(timeoutMilliseconds: -1) == .ok)
      #expect(count.now == 1 && answer.failure == nil && answer.servers.isEmpty)
      runtime.releaseHandle()
    }

    /// When at least one address is known, hosts are left out once the look-up has taken too long.
    @Test func slowHosts() {
      names.records["_grpc._tcp.orders.example"] = (1...9).map { ($0, 1, $0, "h\($0).example") }
      names.hosts = ["h3.example.": ["10.0.0.3"], "h4.example.": ["10.0.0.4"], "h7.example.": ["10.0.0.7"]]
      let count = Counter()
      names.asked = { [names] _ in
        count.up()
        names.now.add(2_000_000_000, ordering: .relaxed)
      }
      // The first two hosts have no address. The third host is looked up after 4 s.
      #expect(ask().servers == ["10.0.0.3:3 priority 3 weight 16384"])
      #expect(count.now == 3)
    }
  }
}
