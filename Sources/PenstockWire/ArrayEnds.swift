// Replacements for functions of Array. The standard library implements each of these by a general function
// that replaces a range by a collection, which takes 400 to 800 bytes of code for each type of element. The
// functions here are loops of a few instructions.
extension Array {
  /// Removes all elements and keeps the storage, like `removeAll(keepingCapacity: true)`.
  public mutating func clear() {
    while !isEmpty { removeLast() }
  }

  /// Removes the first `count` elements, like `removeFirst(count)`.
  public mutating func removeLeading(_ count: Int) {
    if count == 0 { return }
    withUnsafeMutableBufferPointer { all in
      var index = count
      while index < all.count {
        all.swapAt(index &- count, index)
        index &+= 1
      }
    }
    for _ in 0..<count { removeLast() }
  }

  /// Like `insert(_:at:)`.
  public mutating func put(_ element: Element, at index: Int) {
    append(element)
    withUnsafeMutableBufferPointer { all in
      var last = all.count &- 1
      while last > index {
        all.swapAt(last, last &- 1)
        last &-= 1
      }
    }
  }
}

extension Array where Element: Swift.AnyObject {
  /// Removes `object`, like `removeAll { $0 === object }`. The object must be in the array at most once.
  public mutating func drop(_ object: Element) {
    var index = 0
    while index < count, self[index] !== object { index &+= 1 }
    if index == count { return }
    withUnsafeMutableBufferPointer { all in
      while index &+ 1 < all.count {
        all.swapAt(index, index &+ 1)
        index &+= 1
      }
    }
    removeLast()
  }
}
