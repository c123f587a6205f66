// A client that protoc-gen-grpc-swift-2 has made, over libpenstock. Only the line with .penstock differs from a program
// over the transport of grpc-swift; a transport that is kept in a variable has a channel for live interceptors.
import GRPCCore
import PenstockGRPC

let target = CommandLine.arguments[1]

try await withGRPCClient(
  transport: .penstock(target, options: .cleartext)
) { client in
  let greeter = Helloworld_Greeter.Client(wrapping: client)
  print(try await greeter.sayHello(.with { $0.name = "Ada" }).message)
  do {
    let asked: Metadata = ["x-status": "5", "x-message": "nobody"]
    print(try await greeter.sayHello(.with { $0.name = "Bob" }, metadata: asked).message)
  } catch let error as RPCError {
    print("\(error.code): \(error.message)")
  }
}

let transport = try PenstockClientTransport(target: target, options: .cleartext)
try await withGRPCClient(transport: transport) { client in
  let log = try transport.channel.addInterceptor(
    "log",
    .around { call in
      print("\(call.start.method) begins")
      try await call.next()
    })
  let greeter = Helloworld_Greeter.Client(wrapping: client)
  try await greeter.sayHelloStreamReply(.with { $0.name = "Cy" }) { response in
    for try await greeting in response.messages { print(greeting.message) }
  }
  try log.remove()
}
