#if GRPCSwift
  import GRPCCore
  import Penstock

  // The values of both libraries, turned into each other.

  extension Penstock.Metadata {
    /// Adds the metadata of a request, without the names that the library writes itself.
    mutating func add(_ metadata: GRPCCore.Metadata) {
      for (key, value) in metadata {
        let name = key.lowercased()
        // The deadline comes from the options. The number of earlier attempts can't be set from outside the library.
        if name == "grpc-timeout" || name == "grpc-previous-rpc-attempts" { continue }
        switch value {
        case .binary(let bytes): add(bytes, for: name)
        case .string(let text): add(name.hasSuffix("-bin") ? decoded(text) : [UInt8](text.utf8), for: name)
        }
      }
    }

    /// Decodes a binary value that the program has written as base64; other text is taken as it is.
    private func decoded(_ text: String) -> [UInt8] {
      var single = GRPCCore.Metadata()
      single.addString(text, forKey: "value-bin")
      return single[binaryValues: "value-bin"].first { _ in true } ?? [UInt8](text.utf8)
    }
  }

  extension GRPCCore.Metadata {
    init(_ metadata: Penstock.Metadata) {
      self.init()
      reserveCapacity(metadata.count)
      for entry in metadata {
        if entry.name.hasSuffix("-bin") {
          addBinary(entry.bytes, forKey: entry.name)
        } else {
          addString(entry.value, forKey: entry.name)
        }
      }
    }
  }

  extension GRPCCore.Status {
    init(_ status: Penstock.Status) {
      self.init(code: Code(rawValue: Int(status.code.rawValue)) ?? .unknown, message: status.message)
    }
  }

  extension GRPCCore.RPCError {
    /// Turns an error of `Penstock` into one of GRPCCore.
    init(_ error: any Error) {
      switch error {
      case let error as GRPCCore.RPCError: self = error
      case let error as Penstock.RPCError:
        self.init(
          code: Code(GRPCCore.Status(error.status).code) ?? .unknown, message: error.message,
          metadata: GRPCCore.Metadata(error.status.trailers))
      case let error as PenstockError:
        self.init(code: Code(error.code), message: error.message, cause: error)
      default: self.init(code: .unknown, message: "\(error)", cause: error)
      }
    }
  }

  extension GRPCCore.RPCError.Code {
    init(_ code: PenstockError.Code) {
      switch code {
      case .tooLarge, .noMemory: self = .resourceExhausted
      case .invalidArgument, .invalidOption: self = .invalidArgument
      case .closed, .gone, .already, .state: self = .failedPrecondition
      case .unsupported: self = .unimplemented
      default: self = .internalError
      }
    }
  }

  extension MethodDescriptor {
    /// The kind of the call; one whose kind is not known may have any number of messages.
    var kind: CallKind {
      switch type {
      case .unary: .unary
      case .clientStreaming: .clientStream
      case .serverStreaming: .serverStream
      case .bidirectionalStreaming, nil: .bidi
      }
    }
  }

  extension Penstock.CallOptions {
    /// These options with those of GRPCCore, which come first, and the request's metadata.
    func with(_ options: GRPCCore.CallOptions, _ metadata: GRPCCore.Metadata) -> Penstock.CallOptions {
      var result = self
      // GRPCCore writes the time that is left of the whole call, with all its attempts, into the metadata.
      let left = metadata[stringValues: "grpc-timeout"].first { _ in true }.flatMap(Duration.init(timeout:))
      result.timeout = [left, options.timeout, timeout].compactMap { $0 }.min()
      result.waitsForReady = options.waitForReady ?? waitsForReady
      result.maxSendMessageBytes = options.maxRequestMessageBytes.map(Self.limit) ?? maxSendMessageBytes
      result.maxReceiveMessageBytes =
        options.maxResponseMessageBytes.map(Self.limit) ?? maxReceiveMessageBytes
      result.compression = options.compression.flatMap(Compression.init) ?? compression
      result.metadata.add(metadata)
      return result
    }

    private static func limit(_ bytes: Int) -> Int { min(max(bytes, 0), Int(Int32.max)) }
  }

  extension Compression {
    init?(_ algorithm: CompressionAlgorithm) {
      switch algorithm {
      case .none: self = .identity
      case .gzip: self = .gzip
      case .deflate: self = .deflate
      default: return nil
      }
    }
  }

  extension Duration {
    /// Reads a value of "grpc-timeout": digits and a unit. GRPCCore writes a time that has passed as a negative one.
    init?(timeout text: String) {
      guard text.count <= 9, let unit = text.last, let amount = Int64(text.dropLast()) else { return nil }
      switch unit {
      case "H": self = .seconds(amount * 3_600)
      case "M": self = .seconds(amount * 60)
      case "S": self = .seconds(amount)
      case "m": self = .milliseconds(amount)
      case "u": self = .microseconds(amount)
      case "n": self = .nanoseconds(amount)
      default: return nil
      }
    }
  }

  /// Describes the peer of a target as GRPCCore wants it: "ipv4:127.0.0.1:50051". The connection of a call is chosen later,
  /// so that a name stays a name.
  func peer(ofTarget target: String) -> String {
    if target.hasPrefix("[") { return "ipv6:\(target)" }
    let schemes = ["ipv4:", "ipv6:", "unix:", "unix-abstract:", "dns:"]
    if target.contains("://") || schemes.contains(where: target.hasPrefix) { return target }
    let isAddress = target.split(separator: ":").first?.allSatisfy { $0.isNumber || $0 == "." } ?? false
    return isAddress ? "ipv4:\(target)" : "dns:\(target)"
  }
#endif
