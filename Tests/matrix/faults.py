"""The faults of the matrix, and the status that the specifications give each call that meets one.

The status is that of gRPC's statuscodes.md, PROTOCOL-HTTP2.md and http-grpc-status-mapping.md: a connection that breaks
is UNAVAILABLE; a time that runs out is DEADLINE_EXCEEDED; an answer that breaks the rules is INTERNAL; a reset has the
code of its HTTP/2 error; a request that was certainly not processed is sent again once (gRPC Retry Design, Transparent
Retries)."""

import dataclasses

KINDS = ("unary", "client", "server", "bidi")
# The point of a connection, as docs/errors.md names it.
POINTS = {
    "resolve": "the name",
    "connect": "connecting",
    "handshake": "the TLS handshake",
    "settings": "the server's SETTINGS",
    "request": "the request's headers",
    "message": "the first message sent",
    "message2": "the second message sent",
    "headers": "the answer's headers",
    "answer": "the first message received",
    "answer2": "the second message received",
    "trailers": "the trailers",
}
# Points that only some kinds of calls reach.
ONLY = {"message2": ("client", "bidi"), "answer2": ("server", "bidi")}

@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault: the relay does `action` `where` (before, in, after) the point `at`. `words` describe it in docs/errors.md."""

    at: str
    where: str
    action: str
    code: str
    words: str
    # Whether only the first connection has the fault.
    once: bool = False
    only_tls: bool = False

    @property
    def name(self):
        return f"{self.at} {self.where} {self.action}{' once' if self.once else ''}"

    @property
    def kinds(self):
        return ONLY.get(self.at, KINDS)


def _everywhere():
    """Faults that have the same effect at each point of a connection."""
    points = [point for point in POINTS if point not in ("resolve", "connect", "handshake")]
    for at in points:
        yield Fault(at, "before", "cut", "UNAVAILABLE", "the connection is closed before it")
        yield Fault(at, "in", "cut", "UNAVAILABLE", "the connection is closed within it")
        yield Fault(at, "before", "reset", "UNAVAILABLE", "the connection is reset before it")
        yield Fault(at, "before", "stall", "DEADLINE_EXCEEDED", "nothing comes any more")
        yield Fault(at, "in", "stall", "DEADLINE_EXCEEDED", "nothing comes any more, from its middle on")
        yield Fault(at, "before", "delay", "OK", "it comes late")
        yield Fault(at, "before", "split", "OK", "it comes byte by byte")


FAULTS = (
    Fault("resolve", "before", "unknown", "UNAVAILABLE", "it does not exist"),
    Fault("connect", "before", "refuse", "UNAVAILABLE", "it is refused"),
    Fault("connect", "after", "reset", "UNAVAILABLE", "the connection is reset at once"),
    Fault("connect", "after", "cut", "UNAVAILABLE", "the connection is closed at once"),
    Fault("connect", "after", "stall", "DEADLINE_EXCEEDED", "the server says nothing"),
    Fault("connect", "after", "garbage", "UNAVAILABLE", "the server says something else"),
    Fault("connect", "after", "http1", "UNAVAILABLE", "an HTTP/1.1 server answers"),
    Fault("handshake", "in", "cut", "UNAVAILABLE", "the connection is closed", only_tls=True),
    Fault("handshake", "in", "stall", "DEADLINE_EXCEEDED", "it stops in the middle", only_tls=True),
    Fault("handshake", "before", "other", "UNAVAILABLE", "the certificate is for another name", only_tls=True),
    Fault("handshake", "before", "stranger", "UNAVAILABLE", "the certificate is of an unknown authority", only_tls=True),
    Fault("handshake", "before", "expired", "UNAVAILABLE", "the certificate has expired", only_tls=True),
    *_everywhere(),
    Fault("settings", "in", "corrupt", "UNAVAILABLE", "another frame comes in its place"),
    Fault("headers", "in", "corrupt", "INTERNAL", "it does not decode (HPACK)"),
    Fault("answer", "in", "corrupt", "INTERNAL", "its compressed flag is not 0 or 1"),
    Fault("answer", "in", "length", "INTERNAL", "its frame is longer than allowed"),
    Fault("trailers", "in", "corrupt", "INTERNAL", "it does not decode (HPACK)"),
    Fault("trailers", "after", "cut", "OK", "the connection is closed after it"),
    Fault("headers", "before", "goaway-drops", "OK", "once, GOAWAY instead: the stream was not processed", once=True),
    Fault("headers", "before", "goaway-drops", "UNAVAILABLE", "each time, GOAWAY instead: the stream was not processed"),
    Fault("headers", "before", "goaway-keeps", "OK", "GOAWAY first, the stream goes on"),
    Fault("answer", "before", "goaway-keeps", "OK", "GOAWAY first, the stream goes on"),
    Fault("trailers", "before", "goaway-keeps", "OK", "GOAWAY first, the stream goes on"),
    Fault("headers", "before", "rst-7", "OK", "once, RST_STREAM(REFUSED_STREAM) instead", once=True),
    Fault("headers", "before", "rst-7", "UNAVAILABLE", "each time, RST_STREAM(REFUSED_STREAM) instead"),
    Fault("headers", "before", "rst-8", "CANCELLED", "RST_STREAM(CANCEL) instead"),
    Fault("headers", "before", "rst-2", "INTERNAL", "RST_STREAM(INTERNAL_ERROR) instead"),
    Fault("headers", "before", "rst-11", "RESOURCE_EXHAUSTED", "RST_STREAM(ENHANCE_YOUR_CALM) instead"),
    Fault("headers", "before", "rst-12", "PERMISSION_DENIED", "RST_STREAM(INADEQUATE_SECURITY) instead"),
    Fault("answer", "in", "rst-2", "INTERNAL", "RST_STREAM(INTERNAL_ERROR) after a part of it"),
    Fault("trailers", "before", "rst-2", "INTERNAL", "RST_STREAM(INTERNAL_ERROR) instead"),
)


def table():
    """The table of docs/errors.md: a row for each fault, with the points at which it has this status."""
    rows = {}
    for fault in FAULTS:
        rows.setdefault((fault.words, fault.code), []).append(POINTS[fault.at])
    everywhere = list(POINTS.values())[3:]
    lines = [f"| {'any of these' if points == everywhere else ', '.join(points)} | {words} | {code} |"
             for (words, code), points in rows.items()]
    return "\n".join(["| at | fault | status |", "|---|---|---|", *lines]) + "\n"
