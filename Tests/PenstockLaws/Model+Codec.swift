import PenstockCall

// The model of the codec, which stands between the object level and the bytes level.

extension Model {
  /// A message comes to the codec from above. False: it can't be encoded, and the call has ended.
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

  /// Whether messages at this hop (-1: above all hops) are objects.
  func isObject(at index: Int) -> Bool { codec != nil && index < codecIndex }
}
