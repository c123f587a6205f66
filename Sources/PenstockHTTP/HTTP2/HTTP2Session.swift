import CPenstockMemory
import CPenstockNghttp2
import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLoop

/// The result of `collect`.
enum Collected: Equatable {
  /// All bytes were collected. Further bytes come only after another event.
  case all
  /// The output is full. There may be more bytes to collect.
  case more
  /// The session has failed. The connection has to be closed after the collected bytes were sent.
  case failed
}

/// The client side of an HTTP/2 connection without its I/O: bytes go in through `receive` and come out through
/// `collect`.
///
/// nghttp2 implements the protocol. Its callbacks (HTTP2SessionEvents.swift) only record events. `dispatch` reports
/// them to the streams' owners; no nghttp2 function is running then, so owners may call any function of the session.
///
/// Flow control: the connection's credit is returned when bytes arrive, so one unread stream can't starve the others. A
/// stream's credit is returned when its owner takes the bytes. So the streams' windows limit the buffered bytes.
final class HTTP2Session {
  var session: OpaquePointer?
  var limits: TransportLimits
  enum Phase {
    /// The peer's SETTINGS have not been received.
    case beginning
    case open
    /// The session accepts no new streams: the peer has sent GOAWAY, or the stream ids are used up.
    case draining
    /// The session has failed, or had to drain, before the peer's SETTINGS were received.
    case stillborn
    /// nghttp2 must not be called again, because the objects that it points to are freed.
    case abandoned
  }

  var phase = Phase.beginning
  /// The most streams that may be open at a time; 0 before the peer's SETTINGS, and when no new streams may open.
  var streamLimit = 0
  var quota = StreamQuota.unlimited
  /// The error text for the peer's GOAWAY; nil: no GOAWAY was received.
  var goAway: ByteBuffer?
  /// Whether the peer has sent a header block of any answer, or a GOAWAY after which it will still answer some streams.
  var hasAnswered = false
  /// Whether the peer's GOAWAY lets streams of ours finish. The peer then still answers those streams.
  var goAwaySparesSome = false
  /// The error text for the failure of the connection; nil: it has not failed.
  var failure: ByteBuffer?
  var failureCode = NGHTTP2_NO_ERROR
  var tracker = FrameTracker()
  /// For `owe`: the bytes that may still come for streams that this side has ended, and the time of the last reduction
  /// of the debt.
  var lateBytes = 0
  var forgivenAt: UInt64

  var open: [HTTP2Stream] = []
  /// New streams. The next `collect` opens them.
  var opening = WaitQueue<HTTP2Stream>()
  /// Whole requests whose bodies do not fit the connection's window now; older than the streams in `opening`. They
  /// wait, because the peer could not answer them from their headers alone. With ten thousand open streams a call costs
  /// grpc++'s server 2.5 times as much as with two thousand.
  var held = WaitQueue<HTTP2Stream>()
  private var changed: [HTTP2Stream] = []
  private var dispatching: [HTTP2Stream] = []
  /// The text of nghttp2's last error.
  let complaint = ByteBuffer()
  /// The stream of the frame that broke the connection; 0: not broken, or by a frame of the connection itself.
  private(set) var culprit: Int32 = 0
  /// Whether the frame that broke the connection belonged to a header block of several frames.
  private(set) var brokeInBlock = false
  /// The number of bytes of an unfinished header block that have been received.
  private var blockBytes = 0
  /// The queue that the running `collect` fills; its caller owns it. nghttp2's callbacks append DATA frames to it.
  var output: Unmanaged<SendQueue>?
  let times: SessionTimes
  /// Whether the last DATA frame has used up a window. The peer has to read before more can be sent then.
  var fillsWindow = false
  private var isDispatching = false
  /// The header list of the request that is being opened.
  let request = FieldList()
  /// The header block that is being received. A connection receives one block at a time.
  let block = HeaderBlock()
  /// The streams that were opened most recently, if they still exist: see `find`.
  let recent: UnsafeMutablePointer<Unmanaged<HTTP2Stream>?>
  static let recentStreams = 128
  /// The number of PINGs that we have sent, the number in the last answered PING, and whether the peer has complained
  /// about too many PINGs.
  private var pings: UInt64 = 0
  var answeredPing: UInt64 = 0
  var hearsTooManyPings = false
  var window = ConnectionWindow()
  var growth: WindowGrowth
  /// Whether the windows have grown.
  var hasGrown = false
  /// The number of received bytes for which the connection's credit has not been returned to the peer.
  var uncredited = 0
  /// The credit of the connection and of a stream is returned when it reaches this number of bytes, so that nghttp2 is
  /// not called for each small message. It is a small part of the smallest window (65,535).
  static let leastCredit = 4096

  /// The most bytes in a frame of either side: large for few system calls, small for short waits of other streams.
  static let maxFrame = 64 << 10

  /// Makes a session; nil: no memory.
  static func make(_ limits: TransportLimits, _ times: SessionTimes = SessionTimes()) -> HTTP2Session? {
    let size = HTTP2Session.recentStreams * MemoryLayout<Unmanaged<HTTP2Stream>?>.stride
    guard let block = cm_alloc(size) else { return nil }
    let session = HTTP2Session(limits, times, block)
    return session.begin() ? session : nil
  }

  private init(_ limits: TransportLimits, _ times: SessionTimes, _ block: UnsafeMutableRawPointer) {
    self.limits = limits
    self.times = times
    forgivenAt = times.now
    growth = WindowGrowth(most: limits.mostWindow, size: limits.streamWindow, now: forgivenAt)
    recent = block.initializeMemory(
      as: Unmanaged<HTTP2Stream>?.self, repeating: nil, count: HTTP2Session.recentStreams)
    confine(self)
  }

  deinit {
    cm_free(recent)
    if let session { nghttp2_session_del(session) }
  }

  private func begin() -> Bool {
    var callbacks: OpaquePointer?
    var option: OpaquePointer?
    guard nghttp2_session_callbacks_new(&callbacks) == 0, let callbacks else { return false }
    defer { nghttp2_session_callbacks_del(callbacks) }
    guard nghttp2_option_new(&option) == 0, let option else { return false }
    defer { nghttp2_option_del(option) }
    HTTP2Session.setCallbacks(callbacks)
    nghttp2_option_set_no_auto_window_update(option, 1)
    // nghttp2 gets no limit, because the session itself queues streams beyond the limit in the peer's SETTINGS.
    nghttp2_option_set_peer_max_concurrent_streams(option, UInt32(Int32.max))
    nghttp2_option_set_no_closed_streams(option, 1)
    // nghttp2 does not check responses, because ResponseRules.swift checks them.
    nghttp2_option_set_no_http_messaging(option, 1)
    nghttp2_option_set_max_reserved_remote_streams(option, 0)
    // nghttp2's limit is above our own limits on metadata, so nghttp2 refuses no request for its size.
    nghttp2_option_set_max_send_header_block_length(option, 16 << 20)
    penstock_allow_continuations(option)
    // nghttp2's session is freed with this object, so this reference is not counted. The callbacks get it for `with`.
    let me = Unmanaged.passUnretained(self).toOpaque()
    var memory = HTTP2Session.memory
    guard nghttp2_session_client_new3(&session, callbacks, me, option, &memory) == 0 else { return false }
    return announce()
  }

  private static var memory: nghttp2_mem {
    nghttp2_mem(
      mem_user_data: nil,
      malloc: { size, _ in cm_alloc(size) },
      free: { block, _ in cm_free(block) },
      calloc: { count, size, _ in
        let (bytes, overflow) = count.multipliedReportingOverflow(by: size)
        guard !overflow, let block = cm_alloc(bytes) else { return nil }
        return memset(block, 0, bytes)
      },
      realloc: { block, size, _ in cm_realloc(block, size) })
  }

  private func announce() -> Bool {
    let window = UInt32(clamping: min(max(limits.streamWindow, 65535), Int(Int32.max)))
    return withUnsafeTemporaryAllocation(of: nghttp2_settings_entry.self, capacity: 4) { entries in
      entries[0] = nghttp2_settings_entry(settings_id: Int32(NGHTTP2_SETTINGS_ENABLE_PUSH.rawValue), value: 0)
      entries[1] = nghttp2_settings_entry(
        settings_id: Int32(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE.rawValue), value: window)
      entries[2] = nghttp2_settings_entry(
        settings_id: Int32(NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE.rawValue),
        value: UInt32(clamping: limits.maxHeaderList))
      entries[3] = nghttp2_settings_entry(
        settings_id: Int32(NGHTTP2_SETTINGS_MAX_FRAME_SIZE.rawValue), value: UInt32(HTTP2Session.maxFrame))
      return nghttp2_submit_settings(session, 0, entries.baseAddress, 4) == 0
    }
  }

  // MARK: State

  var queuedCount: Int { opening.count + held.count }
  var isIdle: Bool { open.isEmpty && queuedCount == 0 }
  /// Whether the peer's SETTINGS were received, and the session has not failed.
  var isReady: Bool { phase == .open || phase == .draining }

  // MARK: Streams

  /// Queues `stream`. The next `collect` opens it, or a later one if there is no room for its request.
  func add(_ stream: HTTP2Stream) {
    guard stream.life == .created else { return }
    stream.life.handle(.added)
    opening.append(stream)
  }

  private func startQueued() {
    guard queuedCount > 0, streamLimit > 0 else { return }
    // A kept header block (`KnownBlocks`) is used only if the output has room, because its frame must not wait.
    request.blocks.isUsable =
      output.map { !$0._withUnsafeGuaranteedRef { $0.isFull(limits.outputSize) } } ?? false
    var room = Int(nghttp2_session_get_remote_window_size(session))
    while mayOpen(room), open.count < streamLimit, let stream = held.popFirst() {
      startInTurn(stream, &room)
    }
    while open.count < streamLimit, let stream = opening.popFirst() {
      if stream.isWholeRequest, !mayOpen(room) || !held.isEmpty {
        held.append(stream)
      } else {
        startInTurn(stream, &room)
      }
    }
    if phase == .draining, let drainReason { endQueued(drainReason) }
  }

  /// The number of streams that may open even if the window has no room: a server may need the headers of one request
  /// before it reads another. Only thousands of waiting requests cost a server much (docs/performance.md).
  static let opensAnyway = 256

  /// Whether the next whole request may open. `room`: the free bytes of the connection's window.
  private func mayOpen(_ room: Int) -> Bool { room > 0 || open.count < HTTP2Session.opensAnyway }

  /// Opens streams that wait; true: at least one was opened. Called when nghttp2 has no more frames. With the last
  /// frames a stream may have ended, or it failed to open; no other event reports that another stream may open instead.
  private func opensMore() -> Bool {
    let count = queuedCount
    startQueued()
    return queuedCount < count
  }

  private func startInTurn(_ stream: HTTP2Stream, _ room: inout Int) {
    room -= stream.bytesToSend
    start(stream)
  }

  private func start(_ stream: HTTP2Stream) {
    request.clear()
    guard let opens = borrow(stream.owner, { $0.streamOpens(stream, request) }) else {
      stream.life.handle(.over)
      return
    }
    guard opens else { return refuse(stream, .noMemory) }
    // RFC 9113 section 10.5.1: a peer may answer a list over its advisory limit with an error. Our own error is
    // clearer.
    let limit = nghttp2_session_get_remote_settings(session, NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE)
    let size = UInt32(clamping: request.size)
    if size > limit { return refuse(stream, .requestTooLarge(size: size, limit: limit)) }
    fitWindow()
    guard submit(stream) else { return }
    stream.listIndex = open.count
    open.append(stream)
  }

  private func submit(_ stream: HTTP2Stream) -> Bool {
    var provider = HTTP2Session.body(of: stream)
    let pointer = provider.source.ptr
    let isWhole = request.hasNoBody
    let hasBody = stream.hasWork && !isWhole
    // A `Field` has the memory layout of nghttp2's `nghttp2_nv`.
    let fields = UnsafeRawPointer(request.fields)?.assumingMemoryBound(to: nghttp2_nv.self)
    let id =
      hasBody
      ? nghttp2_submit_request(session, nil, fields, request.count, &provider, pointer)
      : nghttp2_submit_headers(
        session, isWhole ? UInt8(NGHTTP2_FLAG_END_STREAM.rawValue) : 0, -1, nil, fields, request.count,
        pointer)
    if id > 0 {
      stream.id = id
      stream.life.handle(isWhole ? .submittedWhole : .submitted(withBody: hasBody))
      stream.block = request.block
      request.submitted(id)
      noteRecent(stream)
      // This is the last stream id. The session drains now, because a later stream that nghttp2 refuses would look like
      // a broken connection.
      if id == Int32.max { drain() }
      return true
    }
    refuse(stream, .noMemory)
    return false
  }

  private func refuse(_ stream: HTTP2Stream, _ end: StreamEnd) {
    stream.life.handle(.over)
    stream.finish(end)
    mark(stream)
  }

  /// Describes the body of `stream` to nghttp2. The pointer is not counted: while nghttp2 has it, `open` holds the
  /// stream.
  private static func body(of stream: HTTP2Stream) -> nghttp2_data_provider {
    var provider = nghttp2_data_provider()
    provider.read_callback = HTTP2Session.readBody
    provider.source.ptr = Unmanaged.passUnretained(stream).toOpaque()
    return provider
  }

  /// Called when a stream may have more to send. A body in nghttp2 takes 160 bytes, so it exists only while it can
  /// send.
  func resume(_ stream: HTTP2Stream) {
    guard stream.life == .idle, stream.owner != nil, stream.hasWork else { return }
    var provider = HTTP2Session.body(of: stream)
    if nghttp2_submit_data(session, UInt8(NGHTTP2_FLAG_END_STREAM.rawValue), stream.id, &provider) == 0 {
      stream.life.handle(.bodyGiven)
    } else {
      stream.finish(.noMemory)
      mark(stream)
    }
  }

  /// Called when the owner leaves `stream`: resets an open stream. True: frames have to be sent.
  @discardableResult
  func letGo(_ stream: HTTP2Stream, _ why: Leave) -> Bool {
    stream.letGo()
    switch stream.life {
    case .opening, .openingWithBody, .openingWhole, .idle, .sending, .emptying, .ending, .ended:
      expectLate(limits.streamWindow + floodSize)
      return nghttp2_submit_rst_stream(session, 0, stream.id, HTTP2Error.code(why)) == 0
    case .queued:
      stream.life.handle(.over)
      // The stream is in one of the two queues. That queue will skip it.
      opening.forget()
      held.forget()
    case .created: stream.life.handle(.over)
    case .closed: break
    }
    return false
  }

  func mark(_ stream: HTTP2Stream) {
    guard !stream.isMarked, stream.owner != nil else { return }
    stream.isMarked = true
    changed.append(stream)
  }

  /// Called when bytes of the stream were sent. Marks the stream if its owner wants a report at once; few owners do.
  func markSending(_ stream: HTTP2Stream) {
    if borrow(stream.owner, { $0.streamSends() }) == true { mark(stream) }
  }

  /// Reports to the owners of all changed streams, until no changed stream is left.
  func dispatch() {
    if isDispatching { return }
    isDispatching = true
    defer { isDispatching = false }
    while !changed.isEmpty {
      swap(&changed, &dispatching)
      var index = 0
      while index < dispatching.count {
        // `dispatching` holds the stream, so it is not retained here. The owner is retained: within `streamChanged` the
        // stream may release its own reference to the owner, which may be the last.
        let stream = Unmanaged.passUnretained(dispatching[index])
        index += 1
        stream._withUnsafeGuaranteedRef { stream in
          stream.isMarked = false
          if let owner = stream.owner { owner.streamChanged(stream) }
        }
      }
      dispatching.clear()
    }
  }

  // MARK: Pings

  /// Sends a PING. Its content is its number.
  func ping() {
    pings &+= 1
    ping(pings)
  }

  func ping(_ content: UInt64) {
    guard failure == nil, phase != .abandoned else { return }
    var number = content.bigEndian
    credited(
      withUnsafeBytes(of: &number) {
        nghttp2_submit_ping(session, 0, $0.baseAddress?.assumingMemoryBound(to: UInt8.self))
      })
  }

  /// How many streams this side has opened.
  var opened: UInt64 { UInt64(nghttp2_session_get_next_stream_id(session)) / 2 }

  var view: ConnectionView.HTTP2 {
    ConnectionView.HTTP2(
      sendWindow: Int(nghttp2_session_get_remote_window_size(session)),
      receiveWindow: Int(nghttp2_session_get_local_window_size(session)), pings: pings,
      answeredPings: answeredPing)
  }

  /// Whether the last PING was answered; also true before the first PING.
  var isPingAnswered: Bool { answeredPing == pings }

  // MARK: Bytes

  /// Handles received bytes. False: the connection has to be closed, and `failure` is the reason. Frames before the
  /// failure were handled.
  func receive(_ bytes: ByteView) -> Bool {
    guard failure == nil, let session else { return false }
    complaint.truncate(to: 0)
    guard let start = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self) else { return true }
    var at = 0
    while at < bytes.count, failure == nil {
      let owed = tracker.owed
      guard let count = tracker.push(ByteView(rebasing: bytes[at...])) else {
        fail(tracker.wrongPreface())
        return false
      }
      let n = nghttp2_session_mem_recv(session, start + at, count)
      if uncredited >= HTTP2Session.leastCredit {
        credited(nghttp2_session_consume_connection(session, uncredited))
        if !window.isWide { timeWindow(uncredited) }
        if growth.most != 0 { growth.came() }
        uncredited = 0
      }
      at += count
      if n < 0 {
        fail(broken(Int32(truncatingIfNeeded: n)))
        return false
      }
      if tracker.owed > owed { owe(count, since: owed) }
      blockBytes = tracker.blockBytes(blockBytes, count)
      if blockBytes > floodSize, culprit == 0 { flood(tracker.stream) }
      // nghttp2 has queued a GOAWAY, because a frame broke the connection. Each call gives nghttp2 the bytes of one
      // stream only, so that frame belongs to `tracker.stream`.
      if phase == .open || phase == .beginning, nghttp2_session_check_request_allowed(session) == 0 {
        culprit = tracker.stream
        brokeInBlock = tracker.isLongBlock
        drain()
        break
      }
    }
    return failure == nil
  }

  /// Appends the frames to be sent to `out`, until `out` is full (`limits.outputSize`).
  func collect(into out: SendQueue) -> Collected {
    guard let session, phase != .abandoned else { return .failed }
    var collected = Collected.more
    output = .passUnretained(out)
    if failure == nil { startQueued() }
    while request.blocks.isWaiting || !out.isFull(limits.outputSize) {
      var data: UnsafePointer<UInt8>?
      let n = nghttp2_session_mem_send(session, &data)
      if n <= 0 {
        if n < 0 { fail(broken(Int32(truncatingIfNeeded: n))) }
        if n == 0, opensMore() { continue }
        // nghttp2 also returns 0 if `out` has no room for the next frame. In that case some frames are left.
        if n == 0, queuedCount == 0, !out.isFull(limits.outputSize) { collected = .all }
        break
      }
      let frame = ByteView(start: data, count: n)
      if !(HTTP2Session.isRequest(frame) ? append(frame, to: out) : out.append(frame)) {
        fail(ByteBuffer().say("no memory to send"))
        break
      }
    }
    output = nil
    return failure == nil ? collected : .failed
  }

  private static func isRequest(_ frame: ByteView) -> Bool {
    frame.count >= KnownBlocks.frameHead && frame[3] == UInt8(NGHTTP2_HEADERS.rawValue)
  }

  private func append(_ frame: ByteView, to out: SendQueue) -> Bool {
    let id = Int32(bitPattern: UInt32(bigEndian: frame.loadUnaligned(fromByteOffset: 5, as: UInt32.self)))
    let number = find(id)?._withUnsafeGuaranteedRef { $0.block } ?? 0
    return request.blocks.append(frame, of: id, at: number, to: out)
  }

  /// Whether `collect` would append any bytes.
  var wantsWrite: Bool {
    guard let session, phase != .abandoned else { return false }
    if nghttp2_session_want_write(session) != 0 { return true }
    guard queuedCount > 0, open.count < streamLimit else { return false }
    return !opening.isEmpty || mayOpen(Int(nghttp2_session_get_remote_window_size(session)))
  }
}
