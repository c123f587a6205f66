import PenstockCall

// The part of the model for the codec, which stands between the object level and the bytes level.

extension Model {
  /// Encodes a message that comes to the codec from above. Returns false if it can't be encoded, which ends
  /// the call.
  func encode(_ item: Item) -> Bool {
    guard let codec, item.kind == .send, item.isObject else { return true }
    item.isObject = false
    if codec.cannotEncode == 0 || item.size != codec.cannotEncode { return true }
    arriveSent(1, at: codecIndex - 1)
    finishBetween(codecIndex, Item(.status, code: 13))
    return false
  }

  func decode(_ item: Item) -> Bool {
    guard let codec, item.kind == .receive, !item.isObject else { return true }
    item.isObject = true
    if codec.cannotDecode == 0 || item.size != codec.cannotDecode { return true }
    finishBetween(codecIndex, Item(.status, code: 13))
    return false
  }

  /// Whether messages are objects at this hop (-1: above all hops).
  func isObject(at index: Int) -> Bool { codec != nil && index < codecIndex }
}
