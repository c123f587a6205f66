internal import CPenstock

/// An error of the program or of its surroundings: an option out of range, a closed channel, a message too many.
///
/// A call that ran and ended with a status other than OK throws an ``RPCError`` instead.
public struct PenstockError: Error, Sendable, Hashable, CustomStringConvertible {
  /// The kind of an error: the results of the C API, by number.
  public struct Code: RawRepresentable, Sendable, Hashable, CustomStringConvertible {
    /// The number of the result in the C header.
    public let rawValue: Int32
    /// Makes a code of the number of a result in the C header.
    public init(rawValue: Int32) { self.rawValue = rawValue }

    /// A value that is not allowed.
    public static let invalidArgument = Code(rawValue: PENSTOCK_E_INVALID_ARGUMENT)
    /// An option that is out of range or contradicts another one.
    public static let invalidOption = Code(rawValue: PENSTOCK_E_INVALID_JSON)
    /// An allocation failed.
    public static let noMemory = Code(rawValue: PENSTOCK_E_NO_MEMORY)
    /// This version of the library does not have what was asked for.
    public static let unsupported = Code(rawValue: PENSTOCK_E_UNSUPPORTED)
    /// It was done before.
    public static let already = Code(rawValue: PENSTOCK_E_ALREADY)
    /// The call or the event has ended.
    public static let gone = Code(rawValue: PENSTOCK_E_GONE)
    /// The given time ran out.
    public static let timeout = Code(rawValue: PENSTOCK_E_TIMEOUT)
    /// The object belongs to the parent of this process.
    public static let forked = Code(rawValue: PENSTOCK_E_FORKED)
    /// The channel or its runtime has been closed.
    public static let closed = Code(rawValue: PENSTOCK_E_CLOSED)
    /// There is no such thing.
    public static let notFound = Code(rawValue: PENSTOCK_E_NOT_FOUND)
    /// Not allowed at this point of the call.
    public static let state = Code(rawValue: PENSTOCK_E_STATE)
    /// Larger than a limit.
    public static let tooLarge = Code(rawValue: PENSTOCK_E_TOO_LARGE)
    /// The operating system refused.
    public static let system = Code(rawValue: PENSTOCK_E_SYSTEM)

    /// The name of the result in the C header, such as "PENSTOCK_E_CLOSED".
    public var description: String { String(cString: penstock_result_name(rawValue)) }
  }

  /// The kind of the error.
  public let code: Code
  /// Says in words what failed, where, and what was expected.
  public let message: String

  /// Code and message in one line.
  public var description: String { "\(code): \(message)" }
}
