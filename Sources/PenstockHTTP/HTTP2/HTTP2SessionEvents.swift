import CPenstockNghttp2
import PenstockCall
import PenstockWire
import PenstockLoop
import PenstockLink

/// The callbacks of nghttp2 for the events of a session. They record the events in the session and in its
/// `HTTP2Stream`s. They call no function of an owner except `streamSends` and `streamReceives`, and these
/// functions only record, too.
extension HTTP2Session {
  /// Calls `body` with the session that `pointer` points to. No reference is counted, because a session
  /// outlives every call of its callbacks.
  @inline(__always)
  private static func with(_ pointer: UnsafeMutableRawPointer?, _ body: (HTTP2Session) -> Void) -> Int32 {
    if let pointer { Unmanaged<HTTP2Session>.fromOpaque(pointer)._withUnsafeGuaranteedRef(body) }
    return 0
  }

  /// The slot for stream `id` in `recent`. A later stream may have taken the slot.
  @inline(__always)
  private func recentSlot(_ id: Int32) -> UnsafeMutablePointer<Unmanaged<HTTP2Stream>?> {
    recent + (Int(id >> 1) & (HTTP2Session.recentStreams - 1))
  }

  func noteRecent(_ stream: HTTP2Stream) { recentSlot(stream.id).pointee = .passUnretained(stream) }

  private func forgetRecent(_ stream: HTTP2Stream) {
    let slot = recentSlot(stream.id)
    if slot.pointee?.toOpaque() == Unmanaged.passUnretained(stream).toOpaque() { slot.pointee = nil }
  }

  /// Finds the stream `id`. Most streams are in `recent`; nghttp2 finds the others in its hash table.
  public func find(_ id: Int32) -> Unmanaged<HTTP2Stream>? {
    if let stream = recentSlot(id).pointee, stream._withUnsafeGuaranteedRef({ $0.id == id }) { return stream }
    guard id > 0, let pointer = nghttp2_session_get_stream_user_data(session, id) else { return nil }
    return Unmanaged<HTTP2Stream>.fromOpaque(pointer)
  }

  /// Runs `body` with the stream `id`. The stream is not retained: `body` only records, so the list `open`
  /// holds the stream during the call.
  @inline(__always)
  private func withStream(_ id: Int32, _ body: (HTTP2Stream) -> Void) {
    if let stream = find(id) { stream._withUnsafeGuaranteedRef(body) }
  }

  static func setCallbacks(_ callbacks: OpaquePointer) {
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks) { _, _, me in
      HTTP2Session.with(me) { $0.block.clear() }
    }
    nghttp2_session_callbacks_set_on_header_callback(callbacks) {
      _, frame, name, nameCount, value, valueCount, _, me in
      guard let frame, let name, let value else { return NGHTTP2_ERR_CALLBACK_FAILURE.rawValue }
      let (field, text) = (ByteView(start: name, count: nameCount), ByteView(start: value, count: valueCount))
      var outcome: Int32 = 0
      _ = HTTP2Session.with(me) { session in
        if session.block.note(field, text, limit: session.limits.maxHeaderList) { return }
        outcome = session.received(field, text, on: frame.pointee.hd.stream_id)
      }
      return outcome
    }
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks) { _, _, id, data, count, me in
      HTTP2Session.with(me) { $0.received(ByteView(start: data, count: count), on: id) }
    }
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks) { _, frame, me in
      HTTP2Session.with(me) { session in if let frame { session.received(frame) } }
    }
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks) { _, id, code, me in
      HTTP2Session.with(me) { $0.closed(id, code) }
    }
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks) { _, frame, me in
      HTTP2Session.with(me) { session in if let frame { session.sent(frame) } }
    }
    nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks) { _, frame, _, me in
      HTTP2Session.with(me) { session in if let frame { session.notSent(frame) } }
    }
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks) { _, frame, code, me in
      HTTP2Session.with(me) { $0.complain(frame, nghttp2_strerror(code)) }
    }
    nghttp2_session_callbacks_set_error_callback2(callbacks) { _, _, text, count, me in
      HTTP2Session.with(me) {
        $0.complaint.truncate(to: 0)
        $0.complaint.say(printable: ByteView(start: text, count: count), limit: 200)
      }
    }
    nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks) {
      _, _, _, connection, stream, frame, me in
      // A frame is as large as the peer allows, but at most `maxFrame`, so that other streams do not wait
      // long.
      let window = Int(min(connection, stream))
      let most = min(Int(frame), HTTP2Session.maxFrame)
      _ = HTTP2Session.with(me) { $0.fillsWindow = window <= most }
      return max(1, min(window, most))
    }
    nghttp2_session_callbacks_set_send_data_callback(callbacks) { _, frame, header, count, source, me in
      guard let me, let header, let source else { return NGHTTP2_ERR_CALLBACK_FAILURE.rawValue }
      let stream = Unmanaged<HTTP2Stream>.fromOpaque(source.pointee.ptr)
      return Unmanaged<HTTP2Session>.fromOpaque(me)._withUnsafeGuaranteedRef { session in
        stream._withUnsafeGuaranteedRef { session.send($0, count, after: ByteView(start: header, count: 9)) }
      }
    }
  }

  /// Appends a DATA frame to the output: `header`, then the next `count` bytes of the stream's body.
  private func send(_ stream: HTTP2Stream, _ count: Int, after header: ByteView) -> Int32 {
    guard let output else { return NGHTTP2_ERR_CALLBACK_FAILURE.rawValue }
    return output._withUnsafeGuaranteedRef { out in
      if out.isFull(limits.outputSize) { return NGHTTP2_ERR_WOULDBLOCK.rawValue }
      // The owner has left the stream since `readBody` chose `count`. nghttp2 drops the frame and resets the
      // stream.
      if stream.bytesToSend < count { return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE.rawValue }
      guard out.append(header), stream.moveBody(count, into: out) else {
        return NGHTTP2_ERR_CALLBACK_FAILURE.rawValue
      }
      markSending(stream)
      return 0
    }
  }

  /// Tells nghttp2 how many bytes of a body the next DATA frame has. `send` moves these bytes to the output
  /// later.
  static let readBody: nghttp2_data_source_read_callback = { _, _, _, length, flags, source, _ in
    guard let flags, let source else { return Int(NGHTTP2_ERR_CALLBACK_FAILURE.rawValue) }
    return Unmanaged<HTTP2Stream>.fromOpaque(source.pointee.ptr)._withUnsafeGuaranteedRef { stream in
      let count = stream.bytesOfFrame(length)
      let isLast = stream.endsAfterPieces && count == stream.bytesToSend
      // The owner has left the stream, so no byte is left to send.
      if count == 0 && !isLast { return Int(NGHTTP2_ERR_DEFERRED.rawValue) }
      if count > 0 { flags.pointee |= NGHTTP2_DATA_FLAG_NO_COPY.rawValue }
      if count == stream.bytesToSend {
        flags.pointee |= NGHTTP2_DATA_FLAG_EOF.rawValue
        stream.life.handle(isLast ? .lastPacked : .allPacked)
      }
      if !isLast { flags.pointee |= NGHTTP2_DATA_FLAG_NO_END_STREAM.rawValue }
      return count
    }
  }

  private func complain(_ frame: UnsafePointer<nghttp2_frame>?, _ text: UnsafePointer<CChar>?) {
    complaint.truncate(to: 0)
    if let frame { complaint.say(FrameTracker.name(frame.pointee.hd.type)).say(": ") }
    complaint.say(cString: text)
  }

  /// Resets a stream with a malformed response, which is a stream error PROTOCOL_ERROR (RFC 9113 section
  /// 8.1.1).
  private func refuse(_ stream: HTTP2Stream, _ code: nghttp2_error = NGHTTP2_ERR_HTTP_MESSAGING) {
    _ = nghttp2_submit_rst_stream(session, 0, stream.id, NGHTTP2_PROTOCOL_ERROR.rawValue)
    stream.finish(.broken(brokenRules().say(cString: nghttp2_strerror(code.rawValue))))
    mark(stream)
  }

  /// Checks a header field that `HeaderBlock.note` has not recognised. Returns 0, or an error that makes
  /// nghttp2 skip the rest of the block.
  private func received(_ name: ByteView, _ value: ByteView, on id: Int32) -> Int32 {
    let value = name.first == 0x3A ? value : HeaderRules.trimmed(value)
    if block.noteType(name, value, limit: limits.maxHeaderList) { return 0 }
    switch block.judge(name, value) {
    case .add:
      block.add(name, value, limit: limits.maxHeaderList)
      guard block.size > floodSize else { return 0 }
      flood(id)
      return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE.rawValue
    case .ignore: break
    case .refuse:
      withStream(id) { refuse($0, NGHTTP2_ERR_HTTP_HEADER) }
      return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE.rawValue
    }
    return 0
  }

  /// The most bytes of a header block that are read; a larger block ends the connection. The limit applies to
  /// the block's size on the network, and also to its size by RFC 9113 section 6.5.2.
  var floodSize: Int { Limits.headerBlockLists * limits.maxHeaderList }

  func flood(_ id: Int32) {
    let words = ByteBuffer().say("the connection ended: received headers are over four times the limit of ")
      .say(limits.maxHeaderList).say(" bytes (max_header_list_bytes)")
    failForHeaders(id, words)
  }

  /// Ends the connection because of the response headers of stream `id`. That stream ends as
  /// `answerTooLarge`.
  private func failForHeaders(_ id: Int32, _ words: ByteBuffer) {
    withStream(id) {
      $0.finish(.answerTooLarge(words))
      mark($0)
    }
    fail(words, NGHTTP2_ENHANCE_YOUR_CALM)
  }

  private func received(_ bytes: ByteView, on id: Int32) {
    uncredited += bytes.count
    withStream(id) { stream in
      guard stream.owner != nil, stream.end == nil else { return }
      if !stream.admits(bytes.count) { return refuse(stream) }
      earn()
      stream.received(bytes.count)
      var taken = 0
      if stream.bodyIsEmpty {
        taken = min(max(borrow(stream.owner) { $0.streamReceives(bytes) } ?? 0, 0), bytes.count)
      }
      if taken < bytes.count, !stream.store(ByteView(rebasing: bytes[taken...])) {
        stream.finish(.noMemory)
      }
      consumed(stream, taken)
      mark(stream)
    }
  }

  private func received(_ frame: UnsafePointer<nghttp2_frame>) {
    let header = frame.pointee.hd
    let endsStream = header.flags & UInt8(NGHTTP2_FLAG_END_STREAM.rawValue) != 0
    switch UInt32(header.type) {
    case NGHTTP2_HEADERS.rawValue:
      withStream(header.stream_id) { stream in
        hasAnswered = true
        if hasQuota { answered(header.stream_id) }
        if stream.isUsual(block, endsStream: endsStream) {
          if stream.end == nil { earn() }
          stream.take(block, endsStream: endsStream)
        } else if isGood(stream, endsStream: endsStream) {
          stream.take(block, endsStream: endsStream)
        }
        mark(stream)
      }
    case NGHTTP2_DATA.rawValue:
      guard endsStream else { return }
      withStream(header.stream_id) { stream in
        guard stream.end == nil else { return }
        if !stream.admits(0) || !stream.hasFullLength { return refuse(stream) }
        stream.finish(.body)
        mark(stream)
      }
    case NGHTTP2_RST_STREAM.rawValue:
      withStream(header.stream_id) {
        earn()
        $0.finish(HTTP2Error.end(ofReset: frame.pointee.rst_stream.error_code))
      }
    case NGHTTP2_SETTINGS.rawValue:
      guard header.flags & UInt8(NGHTTP2_FLAG_ACK.rawValue) == 0 else {
        return growth.settled(now: times.now)
      }
      if phase == .beginning { phase = .open }
      limitStreams()
      // The peer's SETTINGS may have made the table of HPACK smaller, so kept blocks may be wrong.
      request.blocks.removeAll()
    case NGHTTP2_GOAWAY.rawValue: received(goAway: frame.pointee.goaway)
    case NGHTTP2_PING.rawValue:
      guard header.flags & UInt8(NGHTTP2_FLAG_ACK.rawValue) != 0 else { return }
      let content = frame.pointee.ping.opaque_data
      let number = withUnsafeBytes(of: content) { UInt64(bigEndian: $0.loadUnaligned(as: UInt64.self)) }
      if number == WindowGrowth.ping { growWindows() } else { answeredPing = number }
    default: break
    }
  }

  /// Checks the whole header block `block`, which is the response's head or trailers. False: the stream has
  /// ended, either because of the block or before it.
  private func isGood(_ stream: HTTP2Stream, endsStream: Bool) -> Bool {
    if stream.end != nil { return false }
    if let flaw = stream.flaw(of: block, endsStream: endsStream) {
      refuse(stream, flaw)
    } else if block.size > limits.maxHeaderList {
      let words = ByteBuffer().say("the received headers are over the limit of ").say(limits.maxHeaderList)
      stream.finish(.answerTooLarge(words.say(" bytes (max_header_list_bytes)")))
    } else if !block.finish() {
      stream.finish(.noMemory)
    } else if block.status / 100 == 1, stream.answer == .awaited {
      tracker.owed += block.size >> 7
      return true
    }
    // The end of a stream is progress for its call, too, so it reduces the debt (PeerDebt.swift). Frames of
    // the ended stream that still arrive add no debt.
    earn()
    if stream.end != nil { expectLate(floodSize) }
    return stream.end == nil
  }

  private func received(goAway frame: nghttp2_goaway) {
    drain()
    goAwaySparesSome = frame.last_stream_id > 0 && nghttp2_session_get_next_stream_id(session) > 1
    if goAwaySparesSome { hasAnswered = true }
    let text = ByteBuffer().say("the server sent GOAWAY (").say(
      HTTP2Error.name(frame.error_code))
    if frame.opaque_data_len > 0 {
      text.say(": ").say(
        printable: ByteView(start: frame.opaque_data, count: frame.opaque_data_len), limit: 100)
    }
    text.say(")")
    if frame.error_code == NGHTTP2_ENHANCE_YOUR_CALM.rawValue,
      bytesEqual(ByteView(start: frame.opaque_data, count: frame.opaque_data_len), "too_many_pings")
    {
      hearsTooManyPings = true
    }
    goAway = text
    endQueued(text)
  }

  private func closed(_ id: Int32, _ code: UInt32) {
    guard let stream = find(id)?.takeUnretainedValue() else { return }
    _ = nghttp2_session_set_stream_user_data(session, id, nil)
    remove(stream)
    if stream.end == nil { stream.finish(end(of: stream, code)) }
    if code == NGHTTP2_REFUSED_STREAM.rawValue, case .refused = stream.end { refused(id) }
    mark(stream)
  }

  /// The reason why nghttp2 closed the stream before its answer was complete.
  private func end(of stream: HTTP2Stream, _ code: UInt32) -> StreamEnd {
    // nghttp2 uses this code also for streams with an id above the last stream id of a GOAWAY.
    if code == NGHTTP2_REFUSED_STREAM.rawValue {
      guard let goAway else { return HTTP2Error.end(ofReset: code) }
      stream.wasPassedOver = goAwaySparesSome
      return .unprocessed(goAway)
    }
    let text = brokenRules()
    return .broken(
      complaint.isEmpty ? text.say(HTTP2Error.name(code)) : text.say(complaint.view))
  }

  private func brokenRules() -> ByteBuffer { ByteBuffer().say("the server broke the rules of HTTP/2: ") }

  private func remove(_ stream: HTTP2Stream) {
    stream.life.handle(.over)
    forgetRecent(stream)
    guard stream.listIndex >= 0, stream.listIndex < open.count else { return }
    let last = open.removeLast()
    if stream.listIndex < open.count {
      open[stream.listIndex] = last
      last.listIndex = stream.listIndex
    }
    stream.listIndex = -1
  }

  private func sent(_ frame: UnsafePointer<nghttp2_frame>) {
    let header = frame.pointee.hd
    switch UInt32(header.type) {
    case NGHTTP2_HEADERS.rawValue:
      withStream(header.stream_id) { stream in
        stream.life.handle(.headersSent)
        resume(stream)
        markSending(stream)
      }
    case NGHTTP2_DATA.rawValue:
      earn(header.length)
      withStream(header.stream_id) { stream in
        stream.life.handle(.dataSent)
        resume(stream)
      }
    case NGHTTP2_GOAWAY.rawValue: sent(goAway: frame.pointee.goaway)
    default: break
    }
  }

  /// Called when a GOAWAY was sent. A GOAWAY that the session has submitted has NO_ERROR. Any other code
  /// means that nghttp2 has found an error of the peer.
  private func sent(goAway frame: nghttp2_goaway) {
    guard frame.error_code != NGHTTP2_NO_ERROR.rawValue, failure == nil else { return }
    if frame.error_code == NGHTTP2_COMPRESSION_ERROR.rawValue, brokeInBlock {
      // nghttp2 reports a field of more than 64 KiB, which needs several frames, as a malformed field.
      let words = ByteBuffer()
        .say("the connection ended: received headers with a field of more than 65536 bytes, or malformed")
      return failForHeaders(culprit, words)
    }
    let text = brokenRules().say(HTTP2Error.name(frame.error_code))
    // nghttp2 puts the rule into the GOAWAY, for most rules. What it has reported of the frame is less precise.
    if frame.opaque_data_len > 0 {
      let rule = ByteView(start: frame.opaque_data, count: frame.opaque_data_len)
      text.say(" (").say(printable: rule, limit: 200).say(")")
    } else if !complaint.isEmpty {
      text.say(" (").say(complaint.view).say(")")
    } else if frame.error_code == NGHTTP2_FRAME_SIZE_ERROR.rawValue, let rule = tracker.lengthRule {
      text.say(" (").say(rule).say(")")
    }
    fail(text)
  }

  /// Called when nghttp2 drops a frame instead of sending it. For HEADERS: the request was reset before, or
  /// could not be sent.
  private func notSent(_ frame: UnsafePointer<nghttp2_frame>) {
    let header = frame.pointee.hd
    guard UInt32(header.type) == NGHTTP2_HEADERS.rawValue else { return }
    for stream in open where stream.id == header.stream_id {
      // nghttp2 closes the stream next and would pass its pointer to `closed`. The stream may be freed by
      // then, so nghttp2 must forget the pointer.
      _ = nghttp2_session_set_stream_user_data(session, stream.id, nil)
      remove(stream)
      stream.finish(.neverSent(goAway ?? ByteBuffer().say("the request could not be sent")))
      mark(stream)
      return
    }
  }
}
