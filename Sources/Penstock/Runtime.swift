internal import CPenstock

/// The options of a runtime. An option that is nil has the library's default.
public struct RuntimeOptions: Sendable, Hashable {
  /// How many loops drive the channels, each with a thread of its own; 1 to 64.
  public var loops: Int?
  /// How many threads may run synchronous interceptors.
  public var maxWorkers: Int?

  /// Makes options with the library's defaults.
  public init(loops: Int? = nil) { self.loops = loops }

  var text: OptionText {
    var text = OptionText()
    text.set("loops", loops)
    text.set("max_workers", maxWorkers)
    return text
  }
}

/// A runtime drives the channels that are made on it, by threads of its own.
///
/// A program that makes none uses the library's default runtime, which ends when nothing uses it any more. No function of
/// this module runs on these threads, except the factories of interceptors and the functions that say so.
public final class Runtime: Sendable {
  let handle: Handle
  /// The values that the runtime's interceptors want from the tasks that make calls.
  let captures: CaptureList
  /// Those of the default runtime: like the runtime itself, they are one for the whole process.
  static let sharedCaptures = CaptureList()

  private init(_ handle: Handle, _ captures: CaptureList) {
    self.handle = handle
    self.captures = captures
  }

  /// Makes a runtime.
  ///
  /// - Throws: ``PenstockError``: an option out of range, or the system gives no thread or descriptor.
  public convenience init(_ options: RuntimeOptions = RuntimeOptions()) throws(PenstockError) {
    self.init(
      try make("the runtime", penstock_runtime_release) { runtime, error in
        penstock_runtime_new(options.text.finished, &runtime, &error)
      }, CaptureList())
  }

  /// The library's default runtime, on which channels are that name none.
  public static func shared() throws(PenstockError) -> Runtime {
    Runtime(
      try make("the default runtime", penstock_runtime_release) { runtime, error in
        penstock_runtime_default(&runtime, &error)
      }, sharedCaptures)
  }

  /// Ends every call with CANCELLED, closes every channel and joins the threads.
  ///
  /// - Parameter limit: how long this function waits; nil: without limit.
  /// - Throws: ``PenstockError``: `timeout`: a function of the program has not returned; `already`: done before.
  public func shutdown(within limit: Duration? = nil) async throws {
    let handle = handle
    try await waiting("shutting the runtime down", limit) {
      penstock_runtime_shutdown(handle.pointer, $0)
    }
  }

  /// A snapshot of the runtime's calls as JSON, for finding out what a call waits for.
  public func snapshot() throws(PenstockError) -> String {
    try text("a snapshot") { penstock_runtime_snapshot_json(handle.pointer, 1_000, &$0) }
  }
}

/// Takes a text that the C API gives away.
func text(
  _ act: @autoclosure () -> String, _ body: (inout UnsafeMutablePointer<CChar>?) -> penstock_result
) throws(PenstockError) -> String {
  var text: UnsafeMutablePointer<CChar>?
  try attempt(act()) { _ in body(&text) }
  guard let text else { return "" }
  defer { penstock_free(text) }
  return String(cString: text)
}
