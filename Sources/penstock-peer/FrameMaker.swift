import CPenstockNghttp2
import PenstockWire
import PenstockHTTP

/// Turns the sending steps of a script into bytes. The only part of nghttp2 that it uses is the HPACK
/// encoder, which accepts any names and values.
final class FrameMaker {
  private var deflater: OpaquePointer?

  init() { nghttp2_hd_deflate_new(&deflater, 4096) }
  deinit { nghttp2_hd_deflate_del(deflater) }

  /// Appends the bytes of `step` to `out`. `current`: the stream of a step that names no stream. False: no
  /// memory.
  func make(_ step: FrameStep, current: Int, into out: ByteBuffer) -> Bool {
    for _ in 0..<step.times {
      let bytes = ByteBuffer()
      guard frames(step, current, into: bytes) else { return false }
      if let cut = step.cut { bytes.truncate(to: cut) }
      guard out.append(bytes.view) else { return false }
    }
    return true
  }

  private func frames(_ step: FrameStep, _ current: Int, into out: ByteBuffer) -> Bool {
    let stream: Int
    switch step.stream {
    case .current: stream = current
    case .number(let number): stream = number
    }
    switch step.kind {
    case .raw: return out.append(step.payload.view)
    case .response, .chunk, .lastChunk:
      http1(step, into: out)
      return true
    case .frame: return frame(step, stream, step.payload.view, into: out)
    case .goaway:
      let payload = ByteBuffer()
      guard FrameParser.bigEndian(step.lastIsCurrent ? current : step.last, into: payload),
        FrameParser.bigEndian(step.code, into: payload), payload.append(step.payload.view)
      else { return false }
      return frame(step, stream, payload.view, into: out)
    case .headers, .pushPromise:
      let block = ByteBuffer()
      if step.kind == .pushPromise && !FrameParser.bigEndian(step.promised, into: block) { return false }
      return encode(step, into: block) && headerFrames(step, stream, block.view, into: out)
    }
  }

  /// Writes a part of an answer of HTTP/1.1.
  private func http1(_ step: FrameStep, into out: ByteBuffer) {
    switch step.kind {
    case .response: out.put(step.line.view)
    case .lastChunk: out.put("0")
    case .chunk, .frame, .headers, .pushPromise, .goaway, .raw:
      if step.line.isEmpty {
        HTTPReason.put(hex: step.payload.count, into: out)
      } else {
        out.put(step.line.view)
      }
      out.put("\r\n").put(step.payload.view).put("\r\n")
      return
    }
    out.put("\r\n")
    for field in step.fields { out.put(field.name.view).put(": ").put(field.value.view).put("\r\n") }
    if !step.isOpen { out.put("\r\n") }
  }

  private func encode(_ step: FrameStep, into block: ByteBuffer) -> Bool {
    let list = FieldList()
    for field in step.fields { list.add(field.name.view, field.value.view) }
    return list.withVectors { vectors, count in
      let vectors = UnsafeMutablePointer(mutating: vectors)
      let bound = nghttp2_hd_deflate_bound(deflater, vectors, count)
      guard let space = block.spare(atLeast: bound) else { return false }
      let start = space.baseAddress?.assumingMemoryBound(to: UInt8.self)
      let n = nghttp2_hd_deflate_hd(deflater, start, space.count, vectors, count)
      if n > 0 { block.commit(n) }
      return n >= 0
    }
  }

  private func headerFrames(_ step: FrameStep, _ stream: Int, _ block: ByteView, into out: ByteBuffer) -> Bool
  {
    let size = step.split ?? 16384 - 256
    var at = min(size, block.count)
    let isLast = at == block.count && !step.isOpen
    guard frame(step, stream, part(block, 0, at), more: isLast ? 4 : 0, into: out) else { return false }
    while at < block.count {
      let next = min(at + size, block.count)
      let isLast = next == block.count && !step.isOpen
      guard header(next - at, type: 9, flags: isLast ? 4 : 0, stream, into: out),
        out.append(part(block, at, next))
      else { return false }
      at = next
    }
    return true
  }

  private func frame(
    _ step: FrameStep, _ stream: Int, _ payload: ByteView, more flags: Int = 0, into out: ByteBuffer
  ) -> Bool {
    guard let pad = step.pad else {
      return header(
        step.length ?? payload.count, type: step.type, flags: step.flags | flags, stream, into: out)
        && out.append(payload)
    }
    let length = step.length ?? payload.count + pad + 1
    guard header(length, type: step.type, flags: step.flags | flags | 8, stream, into: out),
      out.append(byte: UInt8(truncatingIfNeeded: pad)), out.append(payload)
    else { return false }
    for _ in 0..<pad where !out.append(byte: 0) { return false }
    return true
  }

  /// Writes a frame's header (RFC 9113 section 4.1).
  private func header(_ length: Int, type: Int, flags: Int, _ stream: Int, into out: ByteBuffer) -> Bool {
    for byte in [length >> 16, length >> 8, length, type, flags] {
      if !out.append(byte: UInt8(truncatingIfNeeded: byte)) { return false }
    }
    return FrameParser.bigEndian(stream, into: out)
  }
}
