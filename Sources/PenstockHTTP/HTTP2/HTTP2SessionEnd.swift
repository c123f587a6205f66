import CPenstockNghttp2
import PenstockWire

/// The functions that end a session and its streams.
extension HTTP2Session {
  /// Ends the session with a GOAWAY for its failure, if nghttp2 may still be called.
  func sayFailure() {
    if phase != .abandoned { _ = nghttp2_session_terminate_session(session, failureCode.rawValue) }
  }

  /// Queues a GOAWAY without an error. It tells the peer that this side closes the connection.
  func sayGoodbye() {
    guard failure == nil, let session else { return }
    drain()
    _ = nghttp2_submit_goaway(session, 0, 0, NGHTTP2_NO_ERROR.rawValue, nil, 0)
  }

  /// Ends every stream, because the connection is lost. A stream of which no byte was sent ends as
  /// `neverSent`.
  func abandon(_ words: ByteBuffer) {
    fail(words)
    phase = .abandoned
    let all = open
    open = []
    recent.update(repeating: nil, count: HTTP2Session.recentStreams)
    for stream in all {
      stream.listIndex = -1
      if stream.life.isOpening {
        close(stream, .neverSent(words))
      } else if stream.id == culprit {
        // The stream whose frame broke the connection gets the reason. All other streams get a lost
        // connection.
        close(stream, .broken(words))
      } else {
        close(stream, .lost(words))
      }
    }
    endQueued(words)
  }

  /// Ends the requests that wait to be opened, as `neverSent`. Their attempts have to find another
  /// connection.
  public func endQueued(_ words: ByteBuffer) {
    while let stream = held.popFirst() ?? opening.popFirst() { close(stream, .neverSent(words)) }
  }

  /// Checks the result of an nghttp2 function that gives credit to the peer, or submits a frame. After an
  /// error (no memory) the session fails, because otherwise the peer might wait for the credit for ever.
  func credited(_ result: Int32) { if result != 0 { fail(broken(result)) } }

  /// Ends the session because of a failure. `code`: the error code for the peer. Without one the failure is not the
  /// peer's, such as a lack of memory.
  public func fail(_ words: ByteBuffer, _ code: nghttp2_error_code = NGHTTP2_INTERNAL_ERROR) {
    if failure == nil {
      failure = words
      failureCode = code
    }
    drain()
  }

  public func broken(_ code: Int32) -> ByteBuffer {
    let text = ByteBuffer().say("HTTP/2 failed: ").say(cString: nghttp2_strerror(code))
    if !complaint.isEmpty { text.say(" (").say(complaint.view).say(")") }
    return text
  }

  public func close(_ stream: HTTP2Stream, _ end: StreamEnd) {
    stream.life.handle(.over)
    stream.finish(end)
    mark(stream)
  }
}
