// DO NOT EDIT.
// swift-format-ignore-file
// swiftlint:disable all
//
// Made by protoc-gen-penstock-swift from helloworld.proto.

import Penstock

/// A client of helloworld.Greeter.
nonisolated struct Helloworld_GreeterClient: Sendable {
  /// The full name of the service.
  static let serviceName = "helloworld.Greeter"

  /// The methods of the service, for calls by `Channel.call`, and with their paths for interceptors.
  nonisolated enum Methods {
    static let sayHello = Penstock.Method<
      Helloworld_HelloRequest, Helloworld_HelloReply
    >.protobuf("/helloworld.Greeter/SayHello")
    static let sayHelloStreamReply = Penstock.Method<
      Helloworld_HelloRequest, Helloworld_HelloReply
    >.protobuf("/helloworld.Greeter/SayHelloStreamReply")
    static let sayHelloBidiStream = Penstock.Method<
      Helloworld_HelloRequest, Helloworld_HelloReply
    >.protobuf("/helloworld.Greeter/SayHelloBidiStream")
  }

  /// The channel of the calls.
  let channel: Penstock.Channel

  /// Makes a client, whose calls are those of a channel.
  init(_ channel: Penstock.Channel) {
    self.channel = channel
  }

  /// One greeting: "Hello, NAME!".
  func sayHello(
    _ request: Helloworld_HelloRequest, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> Helloworld_HelloReply {
    return try await self.channel.unary(
      Methods.sayHello.path, request, as: Helloworld_HelloReply.self, options: options)
  }

  /// Several greetings to one name.
  func sayHelloStreamReply(
    _ request: Helloworld_HelloRequest, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> Penstock.Responses<Helloworld_HelloReply> {
    return try await self.channel.serverStream(
      Methods.sayHelloStreamReply.path, request, as: Helloworld_HelloReply.self, options: options)
  }

  /// One greeting for each name, as the names come.
  func sayHelloBidiStream<Requests: AsyncSequence & Sendable>(
    _ requests: Requests, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> Penstock.Responses<Helloworld_HelloReply> where Requests.Element == Helloworld_HelloRequest {
    return try await self.channel.bidi(
      Methods.sayHelloBidiStream.path, requests, as: Helloworld_HelloReply.self, options: options)
  }
}
