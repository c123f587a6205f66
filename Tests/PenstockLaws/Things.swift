import PenstockCall
import PenstockWire

// What events look like.

extension Play {
  func identity(_ size: Int) -> Int {
    nextID += 1
    return size >= 8 ? nextID : 0
  }

  func status(_ code: Int32) -> Model.Item {
    nextID += 1
    return Model.Item(.status, id: nextID, code: code)
  }

  func message(_ item: Model.Item) -> Message {
    var content = [UInt8](repeating: 0x2e, count: item.size)
    if item.size >= 8 {
      for index in 0..<8 { content[index] = UInt8(truncatingIfNeeded: item.id >> (8 * index)) }
    }
    return with(content) { ByteBuffer(copying: $0)! }
  }

  func item(_ kind: EventKind, _ message: Message) -> Model.Item {
    let view = message.view
    var id = 0
    if view.count >= 8 { for index in 0..<8 { id |= Int(view[index]) << (8 * index) } }
    return Model.Item(kind, id: id, size: view.count)
  }

  func statusObject(_ item: Model.Item) -> Status {
    let status = Status(StatusCode(rawValue: item.code)!)
    _ = with("s\(item.id)") { status.setMessage($0) }
    return status
  }

  func item(_ status: Status) -> Model.Item {
    let message = text(status.message)
    let id = message.first == "s" ? Int(message.dropFirst()) ?? 0 : 0
    let item = Model.Item(.status, id: id, code: status.code.rawValue)
    item.marks = marks(status.trailers)
    item.isLocal = status.isLocal
    return item
  }

  func marks(_ metadata: Metadata) -> [Int] {
    (0..<metadata.count).map { Int(text(metadata.value(at: $0))) ?? -1 }
  }
}
