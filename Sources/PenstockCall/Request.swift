import PenstockWire
import Synchronization

/// The four kinds of call; the raw values are those of the ABI.
public enum CallKind: Int32, Sendable {
  case unary = 0
  case clientStream = 1
  case serverStream = 2
  case bidi = 3

  @inline(__always)
  public var sendsOne: Bool { self == .unary || self == .serverStream }
  @inline(__always)
  public var receivesOne: Bool { self == .unary || self == .clientStream }
}

/// The content of `start`: everything about the request that on_start may change before it is sent.
public final class Request {
  /// The path with which the call was made: "/service/method", followed by a NUL. Any thread.
  public let firstPath: ByteBuffer
  /// The path now: hops may change it.
  public var path: ByteBuffer { otherPath ?? firstPath }
  private var otherPath: ByteBuffer?
  /// The authority, followed by a NUL; nil: the channel's default authority.
  public var authority: ByteBuffer? { labels?.authority }
  public var labels: RequestLabels?
  public private(set) var metadata: Metadata
  private var end = UInt64.max
  public var settings = CallSettings()
  /// How many attempts a retry policy has made before this one, as the server is told.
  public var previousAttempts: UInt8 = 0
  /// Whether the attempt repeats, by the library's own decision, one that the server has certainly not processed (gRFC A6,
  /// "Transparent Retries").
  public var isTransparentRetry = false
  /// The part of `previousAttempts` that other calls have made before this one.
  public var attemptsBefore: UInt8 = 0
  /// If the request is an attempt of a hedged call: the codes after which another attempt may follow. They count as
  /// failures for the channel's throttle.
  public var hedgedCodes = StatusCodes()
  public let kind: CallKind
  /// The routes (channels to which hops have redirected the request), the latest last. Earlier ones are kept
  /// because another thread may still read them.
  private var routes: [CallRoute] = []
  private let currentRoute = Atomic<UnsafeMutableRawPointer?>(nil)

  /// The deadline in monotonic nanoseconds; nil: none.
  public var deadline: UInt64? {
    get { end == UInt64.max ? nil : end }
    set { end = newValue ?? UInt64.max }
  }

  /// Makes a request. `path` ends with a NUL, and other requests may share it. `deadline` is in monotonic
  /// nanoseconds.
  public init(kind: CallKind, terminated path: ByteBuffer, metadata: Metadata, deadline: UInt64?) {
    self.kind = kind
    firstPath = path
    self.metadata = metadata
    self.deadline = deadline
  }

  /// Makes a request with its own copy of `path`; nil: no memory.
  public convenience init?(kind: CallKind, path: ByteView, metadata: Metadata, deadline: UInt64?) {
    guard let copied = Request.terminated(path) else { return nil }
    self.init(kind: kind, terminated: copied, metadata: metadata, deadline: deadline)
  }

  /// A copy of the request, to be sent later; nil: no memory.
  public func copy() -> Request? {
    metadata.copy().map { with($0) }
  }

  /// A copy of the request, but with this metadata.
  public func with(_ metadata: Metadata) -> Request {
    let other = Request(kind: kind, terminated: path, metadata: metadata, deadline: deadline)
    other.labels = labels
    other.settings = settings
    other.setRoute(route)
    return other
  }

  /// Replaces everything by a copy of `other`. Returns false if there is no memory; then nothing has changed.
  public func become(_ other: Request) -> Bool {
    guard let fresh = other.copy() else { return false }
    adopt(fresh)
    return true
  }

  /// Replaces everything by the contents of `other`, which nobody uses afterwards.
  func adopt(_ other: Request) {
    otherPath = other.path
    labels = other.labels
    metadata = other.metadata
    deadline = other.deadline
    settings = other.settings
    setRoute(other.route)
  }

  public var pathView: ByteView {
    // `firstPath` is never replaced, so this code counts no reference to it.
    guard let otherPath else { return ByteView(rebasing: firstPath.view.dropLast()) }
    return ByteView(rebasing: otherPath.view.dropLast())
  }
  /// Whether the request has none of its own of these: labels, metadata, credentials, previous attempts.
  public var hasOnlyDefaults: Bool {
    labels == nil && metadata.count == 0 && settings.credentials == nil && previousAttempts == 0
  }
  public var authorityView: ByteView? { authority.map { ByteView(rebasing: $0.view.dropLast()) } }

  /// The other channel to which a hop has redirected the request; nil: the call's own channel gets it. Any
  /// thread.
  public var route: CallRoute? {
    currentRoute.load(ordering: .acquiring).map { Unmanaged<CallRoute>.fromOpaque($0).takeUnretainedValue() }
  }

  /// Sets the route. Called only while the start may be changed, by one thread at a time.
  public func setRoute(_ route: CallRoute?) {
    if let route, routes.last !== route { routes.append(route) }
    currentRoute.store(route.map { Unmanaged.passUnretained($0).toOpaque() }, ordering: .releasing)
  }

  public func setPath(_ bytes: ByteView) -> Bool {
    guard let copied = Request.terminated(bytes) else { return false }
    otherPath = copied
    return true
  }

  public func setAuthority(_ bytes: ByteView) -> Bool {
    guard let copied = Request.terminated(bytes) else { return false }
    labels = RequestLabels(
      authority: copied, contentType: labels?.contentType, userAgent: labels?.userAgent, wish: wish)
    return true
  }

  /// Sets the content-type and the user agent to those of `other`; the authority and the endpoint wish stay.
  public func takeLabels(of other: RequestLabels) {
    labels = RequestLabels(
      authority: labels?.authority, contentType: other.contentType, userAgent: other.userAgent, wish: wish)
  }

  /// Whether a path is valid: "/service/method", neither part empty, only visible ASCII (RFC 9113 ":path",
  /// gRPC "Path") without "?" and "#", after which the path of a URL has ended.
  public static func isValidPath(_ path: ByteView) -> Bool {
    let count = path.count
    guard count >= 4, let start = path.baseAddress else { return false }
    let bytes = start.assumingMemoryBound(to: UInt8.self)
    guard bytes[0] == 0x2f else { return false }
    var slash = 0
    var index = 1
    while index < count {
      let byte = bytes[index]
      guard isPathByte(byte) else { return false }
      if byte == 0x2f { slash = index }
      index &+= 1
    }
    return slash > 1 && slash < count - 1
  }

  /// Whether a path may have this byte.
  public static func isPathByte(_ byte: UInt8) -> Bool {
    byte &- 0x21 < 0x5e && byte != 0x3f && byte != 0x23
  }

  /// Whether an authority is valid: not empty, only visible ASCII.
  public static func isValidAuthority(_ authority: ByteView) -> Bool {
    !authority.isEmpty && authority.allSatisfy { $0 > 0x20 && $0 < 0x7f }
  }

  /// A copy of the bytes with a NUL at the end; nil: no memory.
  public static func terminated(_ bytes: ByteView) -> ByteBuffer? {
    guard let copied = ByteBuffer(capacity: bytes.count + 1), copied.append(bytes), copied.append(byte: 0)
    else {
      return nil
    }
    return copied
  }
}

/// A message of a call: bytes, or an object of the user's codec. Hops may replace either.
public typealias Message = ByteBuffer

/// Another channel, to which a hop has redirected the call.
open class CallRoute {
  /// The target and the authority of that channel, each followed by a NUL. Hops see them as those of the
  /// call.
  public final let target: ByteBuffer
  public final let authority: ByteBuffer
  public final let privacy: Privacy
  public final let rpc: RPCProtocol
  /// The most bytes of the path and query of a GET request, without the prefix of the channel's target.
  public final let mostQueryBytes: Int

  public init(
    target: ByteBuffer, authority: ByteBuffer, privacy: Privacy = .cleartext, rpc: RPCProtocol = .grpc,
    mostQueryBytes: Int = 0
  ) {
    self.target = target
    self.authority = authority
    self.privacy = privacy
    self.rpc = rpc
    self.mostQueryBytes = mostQueryBytes
  }

  /// Makes an attempt on the route's channel for a call; nil: it could not be made. On the driving thread.
  open func newBelow() -> CallBelow? { mustOverride(nil) }
}
