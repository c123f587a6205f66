import PenstockCall
import PenstockWire

// Conversions between the model's items and real messages, statuses and events.

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
    if item.isObject, let codec { return ByteBuffer(object: object(item, codec)) }
    return bytes(item)
  }

  func object(_ item: Model.Item, _ codec: Codec) -> CodecObject {
    CodecObject(Unmanaged.passRetained(Thing(item.id, item.size, things)).toOpaque(), codec)
  }

  func bytes(_ item: Model.Item) -> Message {
    with(Play.content(item.id, item.size)) { ByteBuffer(copying: $0)! }
  }

  static func content(_ id: Int, _ size: Int) -> [UInt8] {
    var content = [UInt8](repeating: 0x2e, count: size)
    if size >= 8 { for index in 0..<8 { content[index] = UInt8(truncatingIfNeeded: id >> (8 * index)) } }
    return content
  }

  static func identity(in view: ByteView) -> Int {
    var id = 0
    if view.count >= 8 { for index in 0..<8 { id |= Int(view[index]) << (8 * index) } }
    return id
  }

  func item(_ kind: EventKind, _ message: Message) -> Model.Item {
    if let object = message.codecObject {
      let thing = Thing.at(object.pointer)
      let item = Model.Item(kind, id: thing.id, size: thing.size)
      item.isObject = true
      return item
    }
    return Model.Item(kind, id: Play.identity(in: message.view), size: message.view.count)
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

/// An object of the user, as a message has it above the codec.
final class Thing {
  let id: Int
  let size: Int
  /// Counts the objects that exist.
  let count: Play.Counter

  init(_ id: Int, _ size: Int, _ count: Play.Counter) {
    self.id = id
    self.size = size
    self.count = count
    count.count += 1
  }

  deinit { count.count -= 1 }

  static func at(_ pointer: UnsafeMutableRawPointer?) -> Thing {
    Unmanaged<Thing>.fromOpaque(pointer!).takeUnretainedValue()
  }
}

/// The object behind the user data of the codec's functions.
final class CodecState {
  let plan: CodecPlan
  let things: Play.Counter

  init(_ plan: CodecPlan, _ things: Play.Counter) {
    self.plan = plan
    self.things = things
  }

  static func at(_ pointer: UnsafeMutableRawPointer?) -> CodecState {
    Unmanaged<CodecState>.fromOpaque(pointer!).takeUnretainedValue()
  }

  func codec() -> Codec {
    Codec(
      UserData(Unmanaged.passRetained(self).toOpaque()) {
        Unmanaged<CodecState>.fromOpaque($0!).release()
      },
      encode: { state, _, object, buffer in
        let thing = Thing.at(object)
        let wrong = CodecState.at(state).plan.cannotEncode
        if wrong != 0, thing.size == wrong { return 1 }
        let bytes = Unmanaged<ByteBuffer>.fromOpaque(UnsafeRawPointer(buffer!)).takeUnretainedValue()
        _ = with(Play.content(thing.id, thing.size)) { bytes.append($0) }
        return 0
      },
      decode: { state, _, bytes, count, object in
        let own = CodecState.at(state)
        if own.plan.cannotDecode != 0, count == own.plan.cannotDecode { return 1 }
        let id = Play.identity(in: ByteView(UnsafeRawBufferPointer(start: bytes, count: count)))
        object!.pointee = Unmanaged.passRetained(Thing(id, count, own.things)).toOpaque()
        return 0
      },
      free: { _, object in Unmanaged<Thing>.fromOpaque(object!).release() },
      copy: plan.copies
        ? { state, object in
          let thing = Thing.at(object)
          return Unmanaged.passRetained(Thing(thing.id, thing.size, thing.count)).toOpaque()
        } : nil)
  }
}
