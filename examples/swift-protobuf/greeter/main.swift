// A client that protoc-gen-penstock-swift has made, with one response, an error, and streams.
import Penstock

let channel = try Channel(CommandLine.arguments[1], options: .cleartext)
let greeter = Helloworld_GreeterClient(channel)

let reply = try await greeter.sayHello(.with { $0.name = "Ada" }, options: CallOptions(timeout: .seconds(5)))
print(reply.message)

do {
  let options = CallOptions(metadata: ["x-status": "5", "x-message": "nobody"])
  print(try await greeter.sayHello(.with { $0.name = "Bob" }, options: options).message)
} catch let error as RPCError {
  print("\(error.code): \(error.message)")
}

for try await reply in try await greeter.sayHelloStreamReply(.with { $0.name = "Cy" }) {
  print(reply.message)
}

let (names, feed) = AsyncStream.makeStream(of: Helloworld_HelloRequest.self)
let replies = try await greeter.sayHelloBidiStream(names)
for name in ["Dee", "Eve"] { feed.yield(.with { $0.name = name }) }
feed.finish()
for try await reply in replies { print(reply.message) }
