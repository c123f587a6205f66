import CPenstockNghttp2
import CPenstockSystem
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockHTTP

/// The callbacks that nghttp2 calls. Only this file converts nghttp2's pointers to Swift objects.
enum SessionCallbacks {
  /// Makes nghttp2's session; nil: no memory.
  static func makeHandle(_ session: UnsafeMutableRawPointer) -> OpaquePointer? {
    var callbacks: OpaquePointer?
    var option: OpaquePointer?
    var handle: OpaquePointer?
    guard nghttp2_session_callbacks_new(&callbacks) == 0 else { return nil }
    defer { nghttp2_session_callbacks_del(callbacks) }
    guard nghttp2_option_new(&option) == 0 else { return nil }
    defer { nghttp2_option_del(option) }
    // nghttp2 must not give flow-control credit back by itself. A call does so when it has taken the bytes.
    nghttp2_option_set_no_auto_window_update(option, 1)
    nghttp2_option_set_no_closed_streams(option, 1)
    nghttp2_option_set_max_send_header_block_length(option, 4 << 20)
    install(callbacks)
    guard nghttp2_session_server_new2(&handle, callbacks, session, option) == 0 else { return nil }
    return handle
  }

  private static func session(_ data: UnsafeMutableRawPointer?) -> Session? {
    data.map { Unmanaged<Session>.fromOpaque($0).takeUnretainedValue() }
  }

  private static func call(_ handle: OpaquePointer?, _ stream: Int32) -> Call? {
    nghttp2_session_get_stream_user_data(handle, stream).map {
      Unmanaged<Call>.fromOpaque($0).takeUnretainedValue()
    }
  }

  private enum Is {
    static let endStream = UInt8(truncatingIfNeeded: NGHTTP2_FLAG_END_STREAM.rawValue)
    static let headers = UInt8(truncatingIfNeeded: NGHTTP2_HEADERS.rawValue)
    static let data = UInt8(truncatingIfNeeded: NGHTTP2_DATA.rawValue)
  }

  private static func install(_ callbacks: OpaquePointer?) {
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks) { handle, frame, data in
      guard let frame, let session = SessionCallbacks.session(data) else { return 0 }
      guard frame.pointee.hd.type == Is.headers, frame.pointee.headers.cat == NGHTTP2_HCAT_REQUEST else {
        return 0
      }
      let stream = frame.pointee.hd.stream_id
      let call = session.open(stream)
      nghttp2_session_set_stream_user_data(handle, stream, Unmanaged.passUnretained(call).toOpaque())
      return 0
    }
    nghttp2_session_callbacks_set_on_header_callback(callbacks) {
      handle, frame, name, nameCount, value, valueCount, _, _ in
      guard let frame, frame.pointee.headers.cat == NGHTTP2_HCAT_REQUEST,
        let call = SessionCallbacks.call(handle, frame.pointee.hd.stream_id)
      else { return 0 }
      call.field(ByteView(start: name, count: nameCount), ByteView(start: value, count: valueCount))
      return 0
    }
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks) { handle, frame, _ in
      guard let frame else { return 0 }
      let header = frame.pointee.hd
      guard header.type == Is.headers || header.type == Is.data,
        let call = SessionCallbacks.call(handle, header.stream_id)
      else { return 0 }
      if header.type == Is.headers && frame.pointee.headers.cat == NGHTTP2_HCAT_REQUEST { call.headersEnd() }
      if header.flags & Is.endStream != 0 { call.inputEnds() }
      return 0
    }
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks) {
      handle, _, stream, bytes, count, data in
      nghttp2_session_consume_connection(handle, count)
      if let call = SessionCallbacks.call(handle, stream) {
        call.receive(ByteView(start: bytes, count: count))
      } else {
        nghttp2_session_consume_stream(handle, stream, count)
      }
      return 0
    }
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks) { handle, stream, code, data in
      guard let call = SessionCallbacks.call(handle, stream) else { return 0 }
      call.closeCode = code
      nghttp2_session_set_stream_user_data(handle, stream, nil)
      SessionCallbacks.session(data)?.drop(call)
      return 0
    }
    // "the server should send RST_STREAM with NO_ERROR error code immediately following that HEADERS frame" (gRPC
    // over HTTP2, "Early Server Closure"). The answers of the other protocols end with DATA.
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks) { handle, frame, _ in
      guard let frame, frame.pointee.hd.flags & Is.endStream != 0,
        frame.pointee.hd.type == Is.headers || frame.pointee.hd.type == Is.data,
        let call = SessionCallbacks.call(handle, frame.pointee.hd.stream_id), !call.inputHasEnded
      else { return 0 }
      nghttp2_submit_rst_stream(handle, 0, call.id, 0)
      return 0
    }
    nghttp2_session_callbacks_set_send_data_callback(callbacks) { _, _, header, count, source, data in
      guard let header, let source, let session = SessionCallbacks.session(data),
        let pointer = source.pointee.ptr
      else { return Int32(NGHTTP2_ERR_CALLBACK_FAILURE.rawValue) }
      let call = Unmanaged<Call>.fromOpaque(pointer).takeUnretainedValue()
      guard session.link.output.append(ByteView(start: header, count: 9)),
        call.output.move(count, into: session.link.output) != nil
      else { return Int32(NGHTTP2_ERR_CALLBACK_FAILURE.rawValue) }
      return 0
    }
    nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks) {
      _, _, _, connection, stream, frame, _ in
      // Larger DATA frames would save little time, and would delay the other streams.
      let most: UInt32 = 64 << 10
      return Int(max(1, min(connection, stream, Int32(truncatingIfNeeded: min(frame, most)))))
    }
  }

  /// Makes the object from which nghttp2 gets the contents of the response's DATA frames. Its source is
  /// `call`.
  static func provider(_ call: Call) -> nghttp2_data_provider {
    var provider = nghttp2_data_provider()
    provider.source.ptr = Unmanaged.passUnretained(call).toOpaque()
    provider.read_callback = { _, _, _, length, flags, source, _ in
      guard let flags, let pointer = source?.pointee.ptr else {
        return Int(NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE.rawValue)
      }
      let call = Unmanaged<Call>.fromOpaque(pointer).takeUnretainedValue()
      switch call.provide(length) {
      case .nothing: return Int(NGHTTP2_ERR_DEFERRED.rawValue)
      case .bytes(let count, let follows):
        flags.pointee |= NGHTTP2_DATA_FLAG_NO_COPY.rawValue
        switch follows {
        case .more: break
        case .nothing: flags.pointee |= NGHTTP2_DATA_FLAG_EOF.rawValue
        case .trailers:
          flags.pointee |= NGHTTP2_DATA_FLAG_EOF.rawValue | NGHTTP2_DATA_FLAG_NO_END_STREAM.rawValue
        }
        return count
      }
    }
    return provider
  }
}
