import Penstock

/// Called before anything is sent.
struct Auth: Interceptor {
  func onStart(_ start: inout CallStart) async throws {
    start.metadata["authorization"] = ["Bearer s3cret"]
  }
}

let target = CommandLine.arguments.dropFirst().first ?? "localhost:50051"
let channel = try Channel(target, options: .cleartext)
try channel.addInterceptor("auth", .shared(Auth()), priority: 100)
do {
  // Bytes, as no types are given.
  let reply = try await channel.unary(
    "/helloworld.Greeter/SayHello", [UInt8]("\n\u{3}you".utf8))
  print(String(decoding: reply, as: UTF8.self))
} catch let error as RPCError {
  print(error, error.status.details)
}
