// A cache that is an interceptor: the first call of a method goes to the server, later ones are answered here.
// ResponseCache is a ready-made one, which also compares requests.
import Penstock

actor Cache {
  private var answers: [String: [UInt8]] = [:]

  func answer(_ call: InterceptedCall) async throws {
    let key = call.start.method
    if let known = answers[key] {
      print("\(key): from the cache")
      call.start.answer(CallAnswer(headers: ["x-cache": "hit"], messages: [known]))
      return
    }
    print("\(key): from the server")
    try await call.next()
    if let response = call.response { answers[key] = response }
  }

  func forget() { answers = [:] }
}

struct Settings: Codable, Sendable {
  var color: String
}

let channel = try Channel(CommandLine.arguments[1], options: .cleartext)
let cache = Cache()
let registration = try channel.addInterceptor(
  "cache", .around { try await cache.answer($0) }, priority: 800, methods: ["/penstock.Echo/*"],
  kinds: [.unary])

for color in ["green", "blue"] {
  let settings = try await channel.unary("/penstock.Echo/Unary", Settings(color: color), as: Settings.self)
  print("asked for \(color), got \(settings.color)")
}
await cache.forget()
let fresh = try await channel.unary("/penstock.Echo/Unary", Settings(color: "blue"), as: Settings.self)
print("asked for blue, got \(fresh.color)")
try registration.remove()
let attempts = try await channel.statistics().attempts
print("the server was asked \(attempts.started) times")
