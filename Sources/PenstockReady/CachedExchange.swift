import PenstockCall
import PenstockWire

/// A response that the cache keeps; it is not changed once the cache has it.
final class CachedResponse {
  var headers: Metadata?
  var message: ByteBuffer?
  var status: Status?
  var expiresAt: UInt64 = 0

  var bytes: Int {
    (headers?.listSize ?? 0) + (message?.count ?? 0) + (status?.trailers.listSize ?? 0)
      + (status?.message.count ?? 0)
  }

  /// Begins the key of a call: the method, the encoding of its messages and the chosen metadata, each with its length,
  /// so that different calls have different keys. The message is added later. Without `names` the chosen metadata is
  /// "authorization". nil: no memory.
  static func beginKey(
    _ path: ByteBuffer, _ encoding: ByteView?, _ metadata: Metadata, _ names: [ByteBuffer]?
  ) -> ByteBuffer? {
    let key = ByteBuffer()
    var isComplete = append(path.view, to: key) && append(encoding ?? ByteView(start: nil, count: 0), to: key)
    func add(_ name: ByteView) {
      var occurrence = 0
      while isComplete, let index = metadata.index(of: name, occurrence: occurrence) {
        isComplete = append(metadata.value(at: index), to: key)
        occurrence += 1
      }
      isComplete = isComplete && key.append(byte: 0)
    }
    if let names {
      for name in names { add(name.view) }
    } else {
      add(("authorization" as StaticString).bytes)
    }
    return isComplete ? key : nil
  }

  private static func append(_ part: ByteView, to key: ByteBuffer) -> Bool {
    key.append(byte: 1) && appendDecimal(UInt64(part.count), to: key) && key.append(":") && key.append(part)
  }
}

/// The facts about one call that the cache keeps.
final class CachedExchange {
  let cache: ResponseCache
  /// The ticket of the start, which is held; 0: no ticket is open.
  var ticket: UInt64 = 0
  /// The key of the call as the call came to this hop. It is complete once the message has been added.
  var key: ByteBuffer?
  var isMiss = false
  /// The kept response that answers the call; nil: none does.
  var hit: CachedResponse?
  /// A copy of the response that the call receives from the server, for the cache.
  let seen = CachedResponse()

  init(_ cache: ResponseCache) { self.cache = cache }
}
