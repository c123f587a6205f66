// A token that expires: it is fetched asynchronously when a call needs it, and once more when a server refuses it. Calls
// that come meanwhile wait. A failure of the login rejects the calls.
import Penstock

/// Stands for a server that gives tokens.
actor Login {
  private var count = 0
  func token(instead refused: String?) throws -> BearerToken.Token {
    count += 1
    print("login \(count)", refused.map { "instead of \($0)" } ?? "")
    if count == 3 { throw RPCError(.permissionDenied, "the account is closed") }
    return BearerToken.Token("token-\(count)", lifetime: .seconds(3600))
  }
}

let channel = try Channel(CommandLine.arguments[1], options: .cleartext)
let login = Login()
// Over TLS the option is not needed.
let tokens = try BearerToken(BearerToken.Options(allowsCleartext: true)) { refused in
  try await login.token(instead: refused)
}
try channel.addInterceptor("tokens", tokens.interception, priority: 600)

// Stands for what the server refuses: it does not take the first token any more, and from "late" on none at all.
try channel.addInterceptor(
  "server",
  .around { call in
    let token = call.start.metadata.first("authorization")
    let late = call.start.metadata.first("x-late") != nil
    if token == "Bearer token-1" || late { throw RPCError(.unauthenticated, "the token is not valid") }
    call.start.metadata["x-headers-token"] = [token ?? "none"]
    try await call.next()
  })

// Three calls at once share one login, and one renewal.
try await withThrowingTaskGroup(of: [UInt8].self) { group in
  for number in 1...3 {
    group.addTask { try await channel.unary("/penstock.Echo/Unary", [UInt8("\(number)".utf8.first ?? 0)]) }
  }
  var answers: [String] = []
  for try await answer in group { answers.append(String(decoding: answer, as: UTF8.self)) }
  print("answers:", answers.sorted().joined(separator: " "))
}

let call = try channel.call(Method("/penstock.Echo/Unary"), .unary)
try await call.send([])
call.halfClose()
print("sent with:", try await call.headers()?.first("x-headers-token") ?? "nothing")

// The third login fails, so the call keeps the server's status.
do {
  _ = try await channel.unary("/penstock.Echo/Unary", [], options: CallOptions(metadata: ["x-late": "1"]))
} catch let error as RPCError {
  print("refused:", error)
}
