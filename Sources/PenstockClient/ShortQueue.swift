import PenstockWire

/// A queue that usually has at most one element. The first element is stored in the struct itself, so that
/// such a queue needs no array.
struct ShortQueue<Element> {
  private(set) var first: Element?
  /// The elements after `first`. They begin at the index `next`; the entries before that index are nil.
  private var rest: [Element?] = []
  private var next: UInt32 = 0

  var count: Int { first == nil ? 0 : 1 + rest.count - Int(next) }

  mutating func append(_ element: Element) {
    if first == nil { first = element } else { rest.append(element) }
  }

  mutating func popFirst() -> Element? {
    let taken = first.take()
    if taken != nil, !rest.isEmpty {
      swap(&first, &rest[Int(next)])
      next += 1
      if Int(next) == rest.count {
        // Frees a large array, because only a burst of elements has needed it.
        if rest.capacity <= 64 { rest.clear() } else { rest = [] }
        next = 0
      } else if next == 1024 {
        rest.removeLeading(1024)
        next = 0
      }
    }
    return taken
  }
}
