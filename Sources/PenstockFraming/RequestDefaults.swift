import PenstockCall
import PenstockHTTP
import PenstockWire

/// The data that all requests of a channel share.
public final class RequestDefaults {
  public let privacy: Privacy
  /// The authority, without a NUL.
  public let authority: ByteBuffer
  let userAgent: ByteBuffer
  public let framings: Framings
  public let rpc: RPCProtocol
  /// The path of a target that is a URL, without a slash at its end. It is put before the path of each
  /// method. nil: the target has no path.
  let prefix: ByteBuffer?
  /// The most bytes of a GET request's path and query, without `prefix`.
  public let mostQueryBytes: Int
  /// Whether answers may be compressed by zstd.
  let acceptsZstd: Bool
  /// The compressors of the program; nil: it has none.
  public let compressors: ProgramCompressors?
  /// The compressions that answers may use, if the program has some of its own: all of them, and those that compress.
  private let accepted = ByteBuffer()
  private let acceptedPacked = ByteBuffer()
  /// The owner of the common header fields of Connect's unary calls. This `RequestDefaults` owns the common
  /// fields of all other calls.
  let unary = Unary()

  final class Unary {}

  /// Makes the defaults. `mostURLBytes`: the longest path of a GET request in bytes, with its query.
  public init(
    privacy: Privacy, authority: ByteBuffer, userAgent: ByteBuffer, framings: Framings = Framings(),
    rpc: RPCProtocol = .grpc, prefix: ByteBuffer? = nil, mostURLBytes: Int = 0,
    acceptsZstd: Bool = false, compressors: ProgramCompressors? = nil
  ) {
    self.privacy = privacy
    self.authority = authority
    self.userAgent = userAgent
    self.framings = framings
    self.rpc = rpc
    self.prefix = prefix
    mostQueryBytes = mostURLBytes - (prefix?.count ?? 0)
    self.acceptsZstd = acceptsZstd
    self.compressors = compressors
    guard let compressors else { return }
    accepted.say(compressors.names.view).say(Compression.names(withZstd: acceptsZstd))
    acceptedPacked.say(compressors.names.view).say(Compression.packedNames(withZstd: acceptsZstd))
  }

  /// These defaults for a channel that has these compressors of the program.
  public func with(_ compressors: ProgramCompressors?) -> RequestDefaults {
    RequestDefaults(
      privacy: privacy, authority: authority, userAgent: userAgent, framings: framings, rpc: rpc,
      prefix: prefix,
      mostURLBytes: mostQueryBytes + (prefix?.count ?? 0), acceptsZstd: acceptsZstd,
      compressors: compressors)
  }

  /// Adds the field `name` with the compressions that an answer may use. `packed`: only with those that compress.
  func addAccepted(_ name: StaticString, packed: Bool = false, to fields: FieldList) -> Bool {
    if compressors != nil { return fields.add(name, (packed ? acceptedPacked : accepted).view) }
    return fields.add(
      name, packed ? Compression.packedNames(withZstd: acceptsZstd) : Compression.names(withZstd: acceptsZstd)
    )
  }
}
