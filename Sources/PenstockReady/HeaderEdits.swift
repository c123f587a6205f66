import PenstockCall
import PenstockWire
import PenstockLink

/// Header rules: changes the metadata of calls by a list of edits, in order.
public final class HeaderEdits: ReadyInterceptor {
  public enum Edit {
    case set(ByteBuffer, ByteBuffer)
    case add(ByteBuffer, ByteBuffer)
    case remove(ByteBuffer)
    case rename(ByteBuffer, to: ByteBuffer)
  }

  public struct Lists {
    public var request: [Edit] = []
    public var headers: [Edit] = []
    public var trailers: [Edit] = []

    public init() {}
  }

  private let lists: Lists

  public init(_ lists: Lists) {
    self.lists = lists
    var callbacks = Registration.Callbacks()
    if !lists.request.isEmpty {
      callbacks.onStart = { handle, state in
        let (hop, this) = behind(handle, state, HeaderEdits.self)
        return this.apply(this.lists.request, hop)
      }
    }
    if !lists.headers.isEmpty {
      callbacks.onHeaders = { handle, state in
        let (hop, this) = behind(handle, state, HeaderEdits.self)
        return this.apply(this.lists.headers, hop)
      }
    }
    if !lists.trailers.isEmpty {
      callbacks.onStatus = { handle, state in
        let (hop, this) = behind(handle, state, HeaderEdits.self)
        return this.apply(this.lists.trailers, hop)
      }
    }
    super.init("header_rules", callbacks)
  }

  private func apply(_ edits: [Edit], _ hop: Hop) -> Int32 {
    // The trailers of a status that a cancel or the deadline has made can't be changed.
    guard let metadata = hop.metadata, !metadata.isReadOnly else { return next }
    for edit in edits where HeaderEdits.apply(edit, to: metadata) == .noMemory {
      _ = hop.finish(Status(.resourceExhausted, "no memory for the header rules"))
      break
    }
    return next
  }

  private static func apply(_ edit: Edit, to metadata: Metadata) -> Outcome {
    switch edit {
    case .set(let name, let value): return metadata.set(name.view, value.view)
    case .add(let name, let value): return metadata.add(name.view, value.view)
    case .remove(let name): return metadata.remove(name.view)
    case .rename(let name, let other):
      var occurrence = 0
      while let index = metadata.index(of: name.view, occurrence: occurrence) {
        guard metadata.add(other.view, metadata.value(at: index)) == .ok else { return .noMemory }
        occurrence += 1
      }
      return metadata.remove(name.view)
    }
  }
}
