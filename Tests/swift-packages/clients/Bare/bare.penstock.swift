// DO NOT EDIT.
// swift-format-ignore-file
// swiftlint:disable all
//
// Made by protoc-gen-penstock-swift from bare.proto.

import Penstock

/// A client of Bare.
nonisolated public struct BareClient: Sendable {
  /// The full name of the service.
  public static let serviceName = "Bare"

  /// The methods of the service, for calls by `Channel.call`, and with their paths for interceptors.
  nonisolated public enum Methods_ {
    public static let methods = Penstock.Method<
      Methods, Requests
    >.protobuf("/Bare/Methods")
    public static let send = Penstock.Method<
      Requests, Methods
    >.protobuf("/Bare/Send")
    public static let others = Penstock.Method<
      Channel, Method
    >.protobuf("/Bare/Others")
    public static let more = Penstock.Method<
      CallOptions, Responses
    >.protobuf("/Bare/More")
  }

  /// The channel of the calls.
  public let channel: Penstock.Channel

  /// Makes a client, whose calls are those of a channel.
  public init(_ channel: Penstock.Channel) {
    self.channel = channel
  }

  /// Calls Bare/Methods.
  public func methods<Requests_: AsyncSequence & Sendable>(
    _ requests: Requests_, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> Penstock.Responses<Requests> where Requests_.Element == Methods {
    return try await self.channel.bidi(
      Methods_.methods.path, requests, as: Requests.self, options: options)
  }

  /// Calls Bare/Send.
  public func send<Requests_: AsyncSequence & Sendable>(
    _ requests: Requests_, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> Methods where Requests_.Element == Requests {
    return try await self.channel.clientStream(
      Methods_.send.path, requests, as: Methods.self, options: options)
  }

  /// Calls Bare/Others.
  public func others(
    _ request: Channel, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> Method {
    return try await self.channel.unary(
      Methods_.others.path, request, as: Method.self, options: options)
  }

  /// Calls Bare/More.
  public func more(
    _ request: CallOptions, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> Responses {
    return try await self.channel.unary(
      Methods_.more.path, request, as: Responses.self, options: options)
  }
}
