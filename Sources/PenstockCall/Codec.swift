import PenstockWire

/// Turns objects of the caller into bytes, and bytes into objects, between the object level and the bytes
/// level of a chain. Its functions are the user's. The driving thread calls `encode` and `decode`, which
/// return 0 on success; any thread may call `free`.
public final class Codec {
  public typealias Encode =
    @convention(c) (
      UnsafeMutableRawPointer?, UnsafePointer<CChar>?, UnsafeMutableRawPointer?, OpaquePointer?
    ) -> Int32
  public typealias Decode =
    @convention(c) (
      UnsafeMutableRawPointer?, UnsafePointer<CChar>?, UnsafeRawPointer?, Int,
      UnsafeMutablePointer<UnsafeMutableRawPointer?>?
    ) -> Int32
  public typealias Free = @convention(c) (UnsafeMutableRawPointer?, UnsafeMutableRawPointer?) -> Void
  public typealias Copy =
    @convention(c) (UnsafeMutableRawPointer?, UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer?

  private let userData: UserData
  private let encodeFunction: Encode
  private let decodeFunction: Decode
  private let freeFunction: Free
  private let copyFunction: Copy?
  /// The content-type that names the encoding of the codec's bytes, as in `RequestLabels`; nil: the usual one.
  public let contentType: ByteBuffer?

  public init(
    _ userData: UserData, encode: @escaping Encode, decode: @escaping Decode, free: @escaping Free,
    copy: Copy?, contentType: ByteBuffer? = nil
  ) {
    self.userData = userData
    self.contentType = contentType
    encodeFunction = encode
    decodeFunction = decode
    freeFunction = free
    copyFunction = copy
  }

  var copies: Bool { copyFunction != nil }

  fileprivate func free(_ object: UnsafeMutableRawPointer?) { freeFunction(userData.pointer, object) }

  /// A copy of the object, made by the user's function; nil if there is no such function or it returned NULL.
  func copy(_ object: CodecObject) -> CodecObject? {
    guard let copyFunction, let made = copyFunction(userData.pointer, object.pointer) else { return nil }
    return CodecObject(made, self)
  }

  /// Replaces the message's object by its bytes. Returns false if the user's function has failed.
  func encode(_ message: Message, _ path: ByteBuffer) -> Bool {
    guard let object = message.codecObject else { return true }
    let bytes = ByteBuffer()
    let buffer = OpaquePointer(Unmanaged.passUnretained(bytes).toOpaque())
    let failed = withExtendedLifetime((bytes, object, path)) {
      encodeFunction(userData.pointer, path.cString, object.pointer, buffer) != 0
    }
    if failed { return false }
    message.exchange(with: bytes)
    return true
  }

  /// Replaces the message's bytes by an object. Returns false if the user's function has failed.
  func decode(_ message: Message, _ path: ByteBuffer) -> Bool {
    var made: UnsafeMutableRawPointer?
    let failed = withExtendedLifetime((message, path)) {
      decodeFunction(userData.pointer, path.cString, message.view.baseAddress, message.count, &made) != 0
    }
    if failed { return false }
    message.exchange(with: ByteBuffer())
    message.attachment = CodecObject(made, self)
    return true
  }
}

/// An object of the user that travels through a call in a message. The user's `free` function gets it when
/// its last reference is released.
public final class CodecObject {
  public let pointer: UnsafeMutableRawPointer?
  private let codec: Codec

  public init(_ pointer: UnsafeMutableRawPointer?, _ codec: Codec) {
    self.pointer = pointer
    self.codec = codec
  }

  deinit { codec.free(pointer) }

  /// Wraps another object of the user, for the same codec, that is to replace this one in a message.
  public func another(_ pointer: UnsafeMutableRawPointer?) -> CodecObject { CodecObject(pointer, codec) }
}

extension ByteBuffer {
  /// The object of a message at the object level; nil if the message has bytes.
  public var codecObject: CodecObject? {
    // An attachment of a message with lent bytes keeps the bytes; any other attachment is a `CodecObject`.
    isLent ? nil : attachment.map { unsafeDowncast($0, to: CodecObject.self) }
  }

  public var isObject: Bool { attachment != nil && !isLent }

  public convenience init(object: CodecObject, staysPlain: Bool = false) {
    self.init()
    attachment = object
    self.staysPlain = staysPlain
  }

  /// The message that a call with `codec` sends in place of this one: a separate message, which hops may
  /// change, with the same bytes or object. nil: this message does not fit the codec.
  public func fitting(_ codec: Codec?) -> Message? {
    guard let object = codecObject else { return codec == nil ? lend() : nil }
    return object.isOf(codec) ? ByteBuffer(object: object, staysPlain: staysPlain) : nil
  }

  /// The size of a kept message, in bytes, for comparison with limits. An object counts as a fixed size,
  /// because its real size is not known.
  var charge: Int { isObject ? ByteBuffer.objectCharge : count }
  private static var objectCharge: Int { 64 }
  /// The room that a kept message takes: at least one byte, because an empty message takes memory too.
  public var room: Int { max(charge, 1) }

  /// A separate message with the same bytes, or with a copy of the object. nil: there is no memory, or the
  /// object could not be copied.
  func copied() -> Message? {
    if isLent { return lend() }
    let other: Message?
    if let object = codecObject {
      other = object.copy().map { ByteBuffer(object: $0) }
    } else {
      other = ByteBuffer(copying: view)
    }
    other?.staysPlain = staysPlain
    return other
  }

  /// A C string of the bytes, which end with a NUL.
  fileprivate var cString: UnsafePointer<CChar>? {
    view.baseAddress.map { UnsafeRawPointer($0).assumingMemoryBound(to: CChar.self) }
  }
}

extension CodecObject {
  var copies: Bool { codec.copies }
  fileprivate func copy() -> CodecObject? { codec.copy(self) }
  fileprivate func isOf(_ other: Codec?) -> Bool { codec === other }
}

extension Call {
  /// Encodes a request message for the bytes level. Returns false if the codec has failed and the call was
  /// ended for that.
  func encode(_ message: Message, _ codec: Codec) -> Bool {
    watch.isStale = true
    if codec.encode(message, request.path) { return true }
    tellSent(1, from: codecIndex - 1)
    codecFailed("the codec could not encode a request message of ")
    return false
  }

  func decode(_ message: Message, _ codec: Codec) -> Bool {
    watch.isStale = true
    if message.isObject || codec.decode(message, request.path) { return true }
    codecFailed("the codec could not decode a response message of ")
    return false
  }

  private func codecFailed(_ words: StaticString) {
    endBetween(
      codecIndex, ending?.status ?? Status(.internal, parts: words.bytes, request.pathView))
  }

  /// Ends the call with `status` above the hop at `index`. The hops above see the status; the hop at `index`
  /// and those below see on_cancel, then destroy.
  func endBetween(_ index: Int, _ status: Status) {
    guard phase == .live, !isEnding(above: index) else { return }
    ending = nil
    outboundEnd = min(outboundEnd, index)
    if index < cutAt || bottomCut?.wait != nil { tellSent(dropBottom(), from: cutAt - 1) }
    stopBelow()
    cancelHops(from: index, status)
    moveUp(.status(status), at: index - 1)
  }
}
