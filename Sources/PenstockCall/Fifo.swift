import PenstockWire

/// A queue on an array. `popFirst` only moves the index `head`. When the queue becomes empty, the storage is
/// used again from its beginning.
struct Fifo<Element> {
  private var elements: [Element?] = []
  private var head = 0

  var count: Int { elements.count - head }
  var isEmpty: Bool { count == 0 }
  var first: Element? { isEmpty ? nil : elements[head] }
  var last: Element? { isEmpty ? nil : elements[elements.count - 1] }

  subscript(index: Int) -> Element {
    get { elements[head + index]! }
    set { elements[head + index] = newValue }
  }

  mutating func insert(_ element: Element, at index: Int) { elements.put(element, at: head + index) }

  mutating func append(_ element: Element) { elements.append(element) }

  mutating func popFirst() -> Element? {
    guard !isEmpty else { return nil }
    let element = elements[head]
    elements[head] = nil
    head += 1
    if head == elements.count {
      elements.clear()
      head = 0
    } else if head >= 32, head * 2 >= elements.count {
      elements.removeLeading(head)
      head = 0
    }
    return element
  }

  mutating func remove(at index: Int) -> Element { elements.remove(at: head + index)! }

  mutating func removeAll(where isGone: (Element) -> Bool) {
    elements = elements[head...].filter { element in element.map { !isGone($0) } ?? false }
    head = 0
  }

  mutating func removeAll() {
    elements = []
    head = 0
  }
}
