// DO NOT EDIT.
// swift-format-ignore-file
// swiftlint:disable all
//
// Made by protoc-gen-penstock-swift from words.proto.

public import Penstock

/// Names that mean something in Swift.
nonisolated public struct WordsKeywordsClient: Sendable {
  /// The full name of the service.
  public static let serviceName = "words_of.swift6.Keywords"

  /// The methods of the service, for calls by `Channel.call`, and with their paths for interceptors.
  nonisolated public enum Methods {
    public static let `default` = Penstock.Method<
      WordsClass, WordsClass.TypeMessage
    >.protobuf("/words_of.swift6.Keywords/Default")
    public static let `return` = Penstock.Method<
      WordsClass.TypeMessage, WordsClass
    >.protobuf("/words_of.swift6.Keywords/Return")
    public static let init_ = Penstock.Method<
      WordsClass, WordsClass
    >.protobuf("/words_of.swift6.Keywords/Init")
    public static let self_ = Penstock.Method<
      WordsClass, WordsClass
    >.protobuf("/words_of.swift6.Keywords/Self")
    public static let channel_ = Penstock.Method<
      WordsClass, WordsClass
    >.protobuf("/words_of.swift6.Keywords/Channel")
    public static let httpget = Penstock.Method<
      WordsClass, WordsClass
    >.protobuf("/words_of.swift6.Keywords/HTTPGet")
    public static let listAllIds = Penstock.Method<
      WordsClass, WordsClass
    >.protobuf("/words_of.swift6.Keywords/list_all_ids")
    public static let GetIt = Penstock.Method<
      WordsClass, WordsClass
    >.protobuf("/words_of.swift6.Keywords/GetIt")
    public static let Get_It = Penstock.Method<
      WordsClass, WordsClass
    >.protobuf("/words_of.swift6.Keywords/Get_It")
    public static let ___ = Penstock.Method<
      WordsClass, WordsClass
    >.protobuf("/words_of.swift6.Keywords/__")
    @available(*, deprecated, message: "marked as deprecated in words.proto")
    public static let old = Penstock.Method<
      WordsClass, WordsClass
    >.protobuf("/words_of.swift6.Keywords/Old")
  }

  /// The channel of the calls.
  public let channel: Penstock.Channel

  /// Makes a client, whose calls are those of a channel.
  public init(_ channel: Penstock.Channel) {
    self.channel = channel
  }

  /// Calls words_of.swift6.Keywords/Default.
  public func `default`(
    _ request: WordsClass, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> WordsClass.TypeMessage {
    return try await self.channel.unary(
      Methods.`default`.path, request, as: WordsClass.TypeMessage.self, options: options)
  }

  /// Calls words_of.swift6.Keywords/Return.
  public func `return`(
    _ request: WordsClass.TypeMessage, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> WordsClass {
    return try await self.channel.unary(
      Methods.`return`.path, request, as: WordsClass.self, options: options)
  }

  /// Calls words_of.swift6.Keywords/Init.
  public func init_(
    _ request: WordsClass, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> WordsClass {
    return try await self.channel.unary(
      Methods.init_.path, request, as: WordsClass.self, options: options)
  }

  /// Calls words_of.swift6.Keywords/Self.
  public func self_(
    _ request: WordsClass, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> WordsClass {
    return try await self.channel.unary(
      Methods.self_.path, request, as: WordsClass.self, options: options)
  }

  /// Calls words_of.swift6.Keywords/Channel.
  public func channel_(
    _ request: WordsClass, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> Penstock.Responses<WordsClass> {
    return try await self.channel.serverStream(
      Methods.channel_.path, request, as: WordsClass.self, options: options)
  }

  /// Calls words_of.swift6.Keywords/HTTPGet.
  public func httpget(
    _ request: WordsClass, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> WordsClass {
    return try await self.channel.unary(
      Methods.httpget.path, request, as: WordsClass.self, options: options)
  }

  /// Calls words_of.swift6.Keywords/list_all_ids.
  public func listAllIds<Requests: AsyncSequence & Sendable>(
    _ requests: Requests, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> WordsClass where Requests.Element == WordsClass {
    return try await self.channel.clientStream(
      Methods.listAllIds.path, requests, as: WordsClass.self, options: options)
  }

  /// These two differ only by an underscore.
  public func GetIt(
    _ request: WordsClass, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> WordsClass {
    return try await self.channel.unary(
      Methods.GetIt.path, request, as: WordsClass.self, options: options)
  }

  /// Calls words_of.swift6.Keywords/Get_It.
  public func Get_It(
    _ request: WordsClass, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> WordsClass {
    return try await self.channel.unary(
      Methods.Get_It.path, request, as: WordsClass.self, options: options)
  }

  /// Calls words_of.swift6.Keywords/__.
  public func ___(
    _ request: WordsClass, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> WordsClass {
    return try await self.channel.unary(
      Methods.___.path, request, as: WordsClass.self, options: options)
  }

  /// Was there once.
  @available(*, deprecated, message: "marked as deprecated in words.proto")
  public func old(
    _ request: WordsClass, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> WordsClass {
    return try await self.channel.unary(
      Methods.old.path, request, as: WordsClass.self, options: options)
  }
}

/// A client of words_of.swift6.Retired.
@available(*, deprecated, message: "marked as deprecated in words.proto")
nonisolated public struct WordsRetiredClient: Sendable {
  /// The full name of the service.
  public static let serviceName = "words_of.swift6.Retired"

  /// The methods of the service, for calls by `Channel.call`, and with their paths for interceptors.
  nonisolated public enum Methods {
    @available(*, deprecated, message: "marked as deprecated in words.proto")
    public static let old = Penstock.Method<
      WordsClass, WordsClass
    >.protobuf("/words_of.swift6.Retired/Old")
  }

  /// The channel of the calls.
  public let channel: Penstock.Channel

  /// Makes a client, whose calls are those of a channel.
  public init(_ channel: Penstock.Channel) {
    self.channel = channel
  }

  /// Calls words_of.swift6.Retired/Old.
  @available(*, deprecated, message: "marked as deprecated in words.proto")
  public func old<Requests: AsyncSequence & Sendable>(
    _ requests: Requests, options: Penstock.CallOptions = Penstock.CallOptions()
  ) async throws -> Penstock.Responses<WordsClass> where Requests.Element == WordsClass {
    return try await self.channel.bidi(
      Methods.old.path, requests, as: WordsClass.self, options: options)
  }
}
