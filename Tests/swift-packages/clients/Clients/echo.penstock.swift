// DO NOT EDIT.
// swift-format-ignore-file
// swiftlint:disable all
//
// Made by protoc-gen-penstock-swift from echo.proto.

public import Penstock
public import Shapes
public import SwiftProtobuf

/// Gives back what it gets.
nonisolated public struct Penstock_EchoClient: Sendable {
  /// The full name of the service.
  public static let serviceName = "penstock.Echo"

  /// The methods of the service, for calls by `Channel.call`, and with their paths for interceptors.
  nonisolated public enum Methods {
    public static let unary = Penstock.Method<
      Penstock_Note, Penstock_Note
    >.protobuf("/penstock.Echo/Unary")
    public static let clientStream = Penstock.Method<
      Penstock_Note, Penstock_Note
    >.protobuf("/penstock.Echo/ClientStream")
    public static let serverStream = Penstock.Method<
      Shapes.Common_V1_Shape.Part, Shapes.Common_V1_Shape.Part
    >.protobuf("/penstock.Echo/ServerStream")
    public static let bidi = Penstock.Method<
      Penstock_Note, Penstock_Note
    >.protobuf("/penstock.Echo/Bidi")
    public static let nothing = Penstock.Method<
      SwiftProtobuf.Google_Protobuf_Empty, SwiftProtobuf.Google_Protobuf_Timestamp
    >.protobuf("/penstock.Echo/Nothing")
  }

  /// The channel of the calls.
  public let channel: Penstock.Channel

  /// Makes a client, whose calls are those of a channel.
  public init(_ channel: Penstock.Channel) {
    self.channel = channel
  }

  /// One note for one.
  ///
  /// A second paragraph, with `code`, "quotes", \(x) and */ in it.
  public func unary(
    _ request: Penstock_Note, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> Penstock_Note {
    var options = options
    if options.idempotency == nil { options.idempotency = .noSideEffects }
    return try await self.channel.unary(
      Methods.unary.path, request, as: Penstock_Note.self, options: options)
  }

  /// All notes as one.
  public func clientStream<Requests: AsyncSequence & Sendable>(
    _ requests: Requests, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> Penstock_Note where Requests.Element == Penstock_Note {
    return try await self.channel.clientStream(
      Methods.clientStream.path, requests, as: Penstock_Note.self, options: options)
  }

  /// Calls penstock.Echo/ServerStream.
  public func serverStream(
    _ request: Shapes.Common_V1_Shape.Part, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> Penstock.Responses<Shapes.Common_V1_Shape.Part> {
    var options = options
    if options.idempotency == nil { options.idempotency = .idempotent }
    return try await self.channel.serverStream(
      Methods.serverStream.path, request, as: Shapes.Common_V1_Shape.Part.self, options: options)
  }

  /// Each note, as it comes.
  public func bidi<Requests: AsyncSequence & Sendable>(
    _ requests: Requests, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> Penstock.Responses<Penstock_Note> where Requests.Element == Penstock_Note {
    return try await self.channel.bidi(
      Methods.bidi.path, requests, as: Penstock_Note.self, options: options)
  }

  /// Nobody answers this.
  public func nothing(
    _ request: SwiftProtobuf.Google_Protobuf_Empty, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> SwiftProtobuf.Google_Protobuf_Timestamp {
    return try await self.channel.unary(
      Methods.nothing.path, request, as: SwiftProtobuf.Google_Protobuf_Timestamp.self, options: options)
  }
}
