import CPenstockMemory
public import PenstockCall
public import PenstockWire

extension Outcome {
  public var name: StaticString {
    switch self {
    case .ok: "PENSTOCK_OK"
    case .invalidArgument: "PENSTOCK_E_INVALID_ARGUMENT"
    case .invalidJSON: "PENSTOCK_E_INVALID_JSON"
    case .noMemory: "PENSTOCK_E_NO_MEMORY"
    case .unsupported: "PENSTOCK_E_UNSUPPORTED"
    case .already: "PENSTOCK_E_ALREADY"
    case .gone: "PENSTOCK_E_GONE"
    case .wouldBlock: "PENSTOCK_E_WOULD_BLOCK"
    case .wouldDeadlock: "PENSTOCK_E_WOULD_DEADLOCK"
    case .busy: "PENSTOCK_E_BUSY"
    case .timedOut: "PENSTOCK_E_TIMEOUT"
    case .interrupted: "PENSTOCK_E_INTERRUPTED"
    case .forked: "PENSTOCK_E_FORKED"
    case .closed: "PENSTOCK_E_CLOSED"
    case .notFound: "PENSTOCK_E_NOT_FOUND"
    case .state: "PENSTOCK_E_STATE"
    case .tooLarge: "PENSTOCK_E_TOO_LARGE"
    case .system: "PENSTOCK_E_SYSTEM"
    case .end: "PENSTOCK_E_END"
    }
  }
}

/// The reason why an exported function has failed: a `penstock_error`. Immutable.
public final class Failure {
  public let outcome: Outcome
  /// The message, followed by a NUL; nil: there was no memory for it.
  public let message: ByteBuffer?
  /// The JSON path of the wrong value; nil if the failure does not concern JSON.
  public let path: ByteBuffer?
  public private(set) var json: UnsafeMutablePointer<CChar>?

  public init(_ outcome: Outcome, _ parts: ByteView..., path: ByteBuffer? = nil) {
    self.outcome = outcome
    let raw = ByteBuffer()
    let message = ByteBuffer()
    let isWhole =
      parts.allSatisfy { raw.append($0) } && UTF8Repair.repair(raw.view, into: message)
      && message.append(byte: 0)
    self.message = isWhole ? message : nil
    self.path = path
    guard isWhole else { return }
    json = JSON.object { object in
      object.set("code", JSON.string(outcome.name.bytes))
      object.set("message", JSON.string(ByteView(rebasing: message.view.dropLast())))
      object.set("path", path.map { JSON.string($0.view) } ?? JSON.null)
    }.text()
  }

  public convenience init(_ outcome: Outcome, _ message: StaticString) { self.init(outcome, message.bytes) }

  deinit { free(json) }

  /// The texts of a failure for which there was no memory.
  public static var noMemory: StaticString { "no memory" }
  public static var noMemoryJSON: StaticString {
    #"{"code": "PENSTOCK_E_NO_MEMORY", "message": "no memory", "path": null}"#
  }
}
