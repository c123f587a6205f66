import PenstockTestSupport
import Testing

@testable import PenstockLoop

extension RuntimeTests {
  @Suite struct LookupTests {
    final class Answer: LookupCompletion {
      let cell = WaitCell()
      var texts: [String] = []
      var failure: String?
      var count = 0
      func lookedUp(_ outcome: LookupOutcome) {
        count += 1
        switch outcome {
        case .addresses(let list): texts = list.map { String(decoding: $0.text(), as: UTF8.self) }
        case .servers: failure = "a look-up of a host gives no servers"
        case .failed(let text): failure = String(decoding: text, as: UTF8.self)
        }
        cell.set()
      }
    }

    func ask(_ runtime: Runtime, _ host: [UInt8], _ port: UInt16 = 80) -> Answer {
      let answer = Answer()
      runtime.perform {
        host.withUnsafeBytes {
          _ = Lookup.start(host: $0, port: port, services: nil, on: runtime, completion: answer)
        }
        must(answer.count == 0, "told from within start")
      }
      must(runtime.wait(for: answer.cell, deadline: nil, interruptible: false) == .ready, "answer")
      return answer
    }

    @Test(arguments: [
      ("127.0.0.1", "127.0.0.1:80"), ("::1", "[::1]:80"), ("2001:DB8::5", "[2001:db8::5]:80"),
      ("fe80::1%1", "[fe80::1%1]:80"),
    ])
    func literals(_ host: String, _ text: String) {
      let runtime = makeRuntime()
      let answer = ask(runtime, Array(host.utf8))
      #expect(answer.texts == [text] && answer.failure == nil)
      runtime.end()
    }

    @Test func namesAreLookedUp() {
      let runtime = makeRuntime(.host)
      let answer = ask(runtime, Array("localhost".utf8), 65535)
      #expect(answer.texts.contains("127.0.0.1:65535") || answer.texts.contains("[::1]:65535"))
      runtime.end()
    }

    @Test func badNamesFailInWords() {
      let runtime = makeRuntime()
      for host in [
        [], Array("a\0b".utf8), Array(repeating: 0x61, count: 5_000), Array("no such name".utf8),
        [0xff, 0xfe],
      ] {
        let answer = ask(runtime, host)
        #expect(answer.texts.isEmpty && answer.failure?.isEmpty == false)
      }
      runtime.end()
    }

    @Test func manyAtOnceAreQueuedAndACancelledOneIsNotTold() {
      let runtime = makeRuntime()
      let answers = (0..<40).map { _ in Answer() }
      let name = Array("localhost".utf8)
      runtime.perform {
        for (i, answer) in answers.enumerated() {
          let lookup = name.withUnsafeBytes {
            Lookup.start(host: $0, port: 1, services: nil, on: runtime, completion: answer)
          }
          if i % 4 == 3 { lookup.cancel() }
        }
        // No look-up can have ended yet, because each reports its outcome on this thread.
        must(runtime.lookups.running.count == LookupQueue.limit, "a thread for each of so many")
      }
      for (i, answer) in answers.enumerated() where i % 4 != 3 {
        #expect(runtime.wait(for: answer.cell, deadline: nil, interruptible: false) == .ready)
      }
      // The shutdown waits for the threads of cancelled lookups as well.
      #expect(runtime.shutdown(timeoutMilliseconds: -1) == .ok)
      for (i, answer) in answers.enumerated() { #expect(answer.count == (i % 4 == 3 ? 0 : 1)) }
      #expect(!runtime.hasPending)
      runtime.releaseHandle()
    }

    @Test func lookupsOutliveARuntimeThatIsLetGo() {
      weak var seen: Answer?
      for mode in [Runtime.Mode.thread, .host] {
        do {
          let runtime = makeRuntime(mode)
          let answer = Answer()
          seen = answer
          let name = Array("localhost".utf8)
          runtime.perform {
            for _ in 0..<8 {
              _ = name.withUnsafeBytes {
                Lookup.start(host: $0, port: 1, services: nil, on: runtime, completion: answer)
              }
            }
          }
          runtime.releaseHandle()
        }
        eventually("the completion is let go") { seen == nil }
      }
    }
  }
}
