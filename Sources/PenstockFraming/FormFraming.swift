import PenstockCall
import PenstockHTTP
import PenstockWire

/// The posting of a form, which is no RPC: such as a request for a token (RFC 6749 section 4.4.2). It goes as a call of
/// Connect's unary framing over any channel. The request's message is the form, already encoded. The answer's body is the
/// message if the HTTP status is 200, whatever its content-type. With another HTTP status the body goes to the status
/// of the call (`Status.body`), with the header fields as trailers.
final class FormFraming: ConnectUnaryFraming {
  override func requestHeaders(
    _ request: Request, _ defaults: RequestDefaults, now: UInt64, into fields: FieldList
  ) -> Bool {
    fields.clear()
    return addPseudoHeaders("POST", defaults, to: fields) && addPath(of: request, defaults, to: fields)
      && fields.add("content-type", "application/x-www-form-urlencoded")
      && fields.add("accept", "application/json") && fields.add("user-agent", defaults.userAgent.view)
      && fields.add(.contentLength, UInt64(length)) && addCustom(of: request, to: fields)
  }

  /// The server may have noted an assertion or a refresh token, and refuses it the second time.
  override var mayRepeat: Bool { false }
  override func fit(_ type: ByteView?) -> ContentType.Fit { .fits }
  override func hasError(_ type: ByteView?) -> Bool { true }

  /// UNAVAILABLE for an answer that may be another one later: RFC 9110 (15.5.9, 15.6) and RFC 6585 (4).
  override func code(ofHTTP status: Int) -> StatusCode {
    status == 408 || status == 429 || status >= 500 ? .unavailable : .unauthenticated
  }

  override func sayUnread(_ status: Status) {
    status.body = ByteBuffer()
    let text = ByteBuffer().say("HTTP status ").say(httpStatus)
    _ = status.setMessage(text.view)
  }

  override func read(_ error: ByteBuffer, into status: Status) { status.body = error }
}
