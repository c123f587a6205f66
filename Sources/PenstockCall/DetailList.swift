import PenstockWire

/// The details of a status: the type URL and the value of each, one after the other in one buffer, so that many small
/// details take little more memory than their bytes.
struct DetailList {
  /// The ends of a detail's type URL, with its NUL, and of its value. The value begins where the URL ends, and the URL
  /// where the value before it ends.
  private struct Ends {
    let url: UInt32
    let value: UInt32
  }

  /// nil: there was no detail so far.
  private var bytes: ByteBuffer?
  private var ends: [Ends] = []

  var count: Int { ends.count }
  var isEmpty: Bool { ends.isEmpty }

  /// The type URL, followed by a NUL, and the value of the detail at `index`; nil: there is none.
  func detail(at index: Int) -> (typeURL: ByteView, value: ByteView)? {
    guard index >= 0, index < ends.count, let all = bytes?.view else { return nil }
    let start = index > 0 ? Int(ends[index - 1].value) : 0
    let (url, value) = (Int(ends[index].url), Int(ends[index].value))
    return (ByteView(rebasing: all[start..<(url - 1)]), ByteView(rebasing: all[url..<value]))
  }

  /// Adds a detail, whose parts may be parts of a detail of this list. False: no memory; nothing was added.
  mutating func append(_ typeURL: ByteView, _ value: ByteView) -> Bool {
    let before = bytes?.count ?? 0
    guard let url = UInt32(exactly: before + typeURL.count + 1),
      let end = UInt32(exactly: before + typeURL.count + 1 + value.count)
    else { return false }
    // The old storage, in which the parts may be, stays as it is until they are copied.
    let old = bytes
    var into = old
    if (old?.spare(atLeast: 0)?.count ?? 0) < Int(end) - before {
      guard let grown = ByteBuffer(capacity: max(Int(end), before * 2)) else { return false }
      if let old, !grown.append(old.view) { return false }
      into = grown
    }
    guard let into, into.append(typeURL), into.append(byte: 0), into.append(value) else {
      old?.truncate(to: before)
      return false
    }
    bytes = into
    ends.append(Ends(url: url, value: end))
    return true
  }

  /// Makes a list of the same details, except that `change` gives another value for one, or nil to leave it out.
  /// nil: no memory.
  func changed(_ change: (Int, (typeURL: ByteView, value: ByteView)) -> ByteView?) -> DetailList? {
    var list = DetailList()
    for index in 0..<count {
      guard let detail = detail(at: index), let value = change(index, detail) else { continue }
      if !list.append(detail.typeURL, value) { return nil }
    }
    return list
  }

  /// A copy with a buffer of its own. Without memory it is empty.
  func copy() -> DetailList {
    var list = DetailList()
    guard let bytes, let copied = ByteBuffer(copying: bytes.view) else { return list }
    list.bytes = copied
    list.ends = ends
    return list
  }
}
