// A stream with an asynchronous pause: an interceptor asks somebody whether a message may go, and waits for the answer.
// Later messages wait behind it in their order; responses come in meanwhile.
import Penstock

/// Stands for somebody who is asked.
actor Reviewer {
  private var asked: (text: String, answer: CheckedContinuation<Bool, Never>)?
  private var reader: CheckedContinuation<Void, Never>?

  /// Asks, and waits until the answer comes.
  func mayGo(_ text: String) async -> Bool {
    await withCheckedContinuation { continuation in
      asked = (text, continuation)
      reader?.resume()
      reader = nil
    }
  }

  /// The text that is asked about, as soon as there is one.
  func question() async -> String {
    if asked == nil { await withCheckedContinuation { reader = $0 } }
    return asked?.text ?? ""
  }

  func answer(_ yes: Bool) {
    asked?.answer.resume(returning: yes)
    asked = nil
  }
}

struct Review: Interceptor {
  let reviewer: Reviewer

  func onRequest(_ message: inout InterceptedMessage) async throws {
    let text = String(decoding: message.bytes, as: UTF8.self)
    guard text.hasPrefix("!") else { return }
    if await !reviewer.mayGo(text) { message.drop() }
  }
}

let channel = try Channel(CommandLine.arguments[1], options: .cleartext)
let reviewer = Reviewer()
try channel.addInterceptor("review", .shared(events: .request, Review(reviewer: reviewer)))

let text = Codec<String>(encode: { [UInt8]($0.utf8) }, decode: { String(decoding: $0, as: UTF8.self) })
let chat = try channel.call(Method("/penstock.Echo/Bidi", requests: text, responses: text), .bidi)

try await chat.send("one")
print("response:", try await chat.response())
Task {
  // Sending waits only while the send buffer is full, so these messages go on behind each other.
  for message in ["!two", "three", "!four", "five"] { try await chat.send(message) }
  chat.halfClose()
}

print("may \(await reviewer.question()) go? yes")
await reviewer.answer(true)
for _ in 0..<2 { print("response:", try await chat.response()) }
print("may \(await reviewer.question()) go? no")
await reviewer.answer(false)
for try await response in chat.responses { print("response:", response) }
