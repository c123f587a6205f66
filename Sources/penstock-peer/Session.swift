import CPenstockNghttp2
import CPenstockSystem
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockLink

/// One HTTP/2 connection. nghttp2 implements HTTP/2, a `Link` moves the bytes, and a `Call` serves each
/// stream.
///
/// No bytes are sent while input is being read. All output is sent together at the end of the turn.
final class Session: ServerConnection {
  /// nghttp2's session; nil: the connection is closed.
  private(set) var handle: OpaquePointer?
  private var calls: [Call] = []
  override var version: StaticString { "2" }
  override var isHTTP2: Bool { true }
  private var watched = CS_EPOLLIN
  private var hasMoreToRead = false

  /// The limit on bytes that wait for the socket. Above it, nghttp2 is not asked for more output.
  private static let outputLimit = 512 << 10
  /// The most reads from the socket in one turn. After them, other sessions are served.
  private static let readsPerTurn = 16

  /// Takes over the connection. `first`: the bytes that the client has already sent.
  static func start(
    _ loop: Loop, _ link: Link, _ options: Options, _ pool: CallPool, number: Int, first: ByteView
  ) {
    let session = Session(loop, link, options, pool, number)
    // nghttp2 keeps a pointer to the session without a reference count. The loop holds the session until
    // `close` frees the handle.
    session.handle = SessionCallbacks.makeHandle(Unmanaged.passUnretained(session).toOpaque())
    guard session.handle != nil, session.greet(), loop.watch(session, CS_EPOLLIN) else {
      return session.close()
    }
    session.hasMoreToRead = true
    loop.mark(session)
    if !first.isEmpty { _ = session.take(first) }
  }

  private func greet() -> Bool {
    withUnsafeTemporaryAllocation(of: nghttp2_settings_entry.self, capacity: 4) { entries in
      var count = 0
      func set(_ id: nghttp2_settings_id, _ value: Int) {
        entries[count] = nghttp2_settings_entry(
          settings_id: Int32(truncatingIfNeeded: id.rawValue), value: UInt32(truncatingIfNeeded: value))
        count += 1
      }
      set(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, options.streamWindow)
      set(NGHTTP2_SETTINGS_MAX_FRAME_SIZE, options.maxFrameBytes)
      set(NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, 1 << 20)
      if options.maxConcurrentStreams > 0 {
        set(NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, options.maxConcurrentStreams)
      }
      return nghttp2_submit_settings(handle, 0, entries.baseAddress, count) == 0
        // The connection gets the largest window, so that unread input of one stream does not block the other
        // streams.
        && nghttp2_session_set_local_window_size(handle, 0, 0, Int32.max) == 0
    }
  }

  // MARK: The loop

  override func ready(_ bits: UInt32) {
    if bits & ~CS_EPOLLOUT != 0 { readAll() }
    if handle != nil { loop.mark(self) }
  }

  override func turnEnds() {
    if handle == nil { return }
    if hasMoreToRead { readAll() }
    send()
  }

  override func stop() {
    if handle == nil { return }
    nghttp2_session_terminate_session(handle, 0)
    send()
    close()
  }

  private func readAll() {
    hasMoreToRead = false
    for _ in 0..<Session.readsPerTurn {
      switch link.receive(loop.receiveBuffer) {
      case .bytes(let bytes):
        guard take(bytes) else { return }
        if link.isCleartext && bytes.count < loop.receiveBuffer.count { return }
      case .wouldBlock: return
      case .ended, .failed: return close()
      }
    }
    hasMoreToRead = true
    loop.mark(self)
  }

  /// Passes the bytes to nghttp2. False: the client has broken the protocol, and the session is closed.
  private func take(_ bytes: ByteView) -> Bool {
    let start = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self)
    if nghttp2_session_mem_recv(handle, start, bytes.count) >= 0 { return true }
    // The last frames that nghttp2 has made, such as GOAWAY, are still sent.
    send()
    close()
    return false
  }

  private func send() {
    guard handle != nil else { return }
    var flushed = Link.Flushed.done
    repeat {
      while link.output.count < Session.outputLimit {
        var bytes: UnsafePointer<UInt8>?
        let n = nghttp2_session_mem_send(handle, &bytes)
        if n < 0 { return close() }
        if n == 0 { break }
        if !link.output.append(ByteView(start: bytes, count: n)) { return close() }
      }
      if link.output.isEmpty {
        flushed = link.flush()
        break
      }
      flushed = link.flush()
    } while flushed == .done
    if flushed == .failed { return close() }
    let wanted = flushed == .blocked ? CS_EPOLLIN | CS_EPOLLOUT : CS_EPOLLIN
    if wanted != watched {
      watched = wanted
      loop.rewatch(self, wanted)
    }
    if flushed == .done && nghttp2_session_want_read(handle) == 0 && nghttp2_session_want_write(handle) == 0 {
      close()
    }
  }

  /// Closes the session. Never called from within an nghttp2 callback.
  private func close() {
    guard let handle else { return loop.forget(self) }
    self.handle = nil
    loop.forget(self)
    for call in calls { release(call) }
    calls.removeAll()
    nghttp2_session_del(handle)
  }

  // MARK: Calls

  /// Makes the call for a new stream. nghttp2 keeps a pointer to the call without a reference count; `calls`
  /// holds the call until the stream closes.
  func open(_ id: Int32) -> Call {
    let call = pool.take()
    call.begin(self, id, index: calls.count)
    calls.append(call)
    return call
  }

  func drop(_ call: Call) {
    let last = calls.removeLast()
    if last !== call {
      last.index = call.index
      calls[call.index] = last
    }
    release(call)
  }

  // MARK: For the calls

  override func consumed(_ call: Call, _ count: Int) {
    nghttp2_session_consume_stream(handle, call.id, count)
  }

  override func respond(_ call: Call, hasBody: Bool) {
    if hasBody {
      var provider = SessionCallbacks.provider(call)
      fields.withVectors { _ = nghttp2_submit_response(handle, call.id, $0, $1, &provider) }
    } else {
      fields.withVectors { _ = nghttp2_submit_response(handle, call.id, $0, $1, nil) }
    }
  }

  override func resume(_ call: Call) { nghttp2_session_resume_data(handle, call.id) }

  override func sendTrailers(_ call: Call) {
    fields.withVectors { _ = nghttp2_submit_trailer(handle, call.id, $0, $1) }
  }

  override func abort(_ call: Call) {
    nghttp2_submit_rst_stream(handle, 0, call.id, NGHTTP2_CANCEL.rawValue)
  }
}
