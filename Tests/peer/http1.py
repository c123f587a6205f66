"""Tests of penstock-peer over HTTP/1.1. Whole calls use http.client; requests that it can't send use plain sockets."""

import base64
import http.client
import json
import re
import socket

from harness import check, check_equal

HELLO = b'{"name":"x"}'
GREETER = "/helloworld.Greeter/SayHello"
UNARY = "/penstock.Echo/Unary"
BIDI = "/penstock.Echo/Bidi"
JSON = {"Content-Type": "application/json"}


def envelope(body, flags=0):
    return bytes([flags]) + len(body).to_bytes(4, "big") + body


class Connection:
    """A socket, and the bytes that were received from it and not read yet."""

    def __init__(self, server):
        host, port = server.address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), 10)
        self.bytes = b""

    def send(self, *parts):
        for part in parts:
            self.socket.sendall(part.encode() if isinstance(part, str) else part)

    def until(self, mark):
        """Reads up to `mark`, and returns the bytes with `mark`."""
        while mark not in self.bytes:
            more = self.socket.recv(65536)
            check(more, f"the connection ended before {mark!r}: {self.bytes!r}")
            self.bytes += more
        at = self.bytes.index(mark) + len(mark)
        found, self.bytes = self.bytes[:at], self.bytes[at:]
        return found

    def rest(self):
        """Reads until the server closes, and returns the bytes."""
        while True:
            more = self.socket.recv(65536)
            if not more:
                break
            self.bytes += more
        return self.bytes

    def head(self):
        """Reads the head of the next answer. Returns the status and the fields."""
        lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split()[1]), {name.lower(): value for name, value in fields.items()}

    def answer(self):
        """Reads the next answer. Returns its status, fields and body."""
        status, fields = self.head()
        if "content-length" in fields:
            return status, fields, self.exactly(int(fields["content-length"]))
        if fields.get("transfer-encoding") != "chunked":
            return status, fields, self.rest()
        body = b""
        while True:
            size = int(self.until(b"\r\n"), 16)
            body += self.exactly(size)
            check_equal(self.exactly(2), b"\r\n", "the end of a chunk")
            if size == 0:
                return status, fields, body

    def exactly(self, count):
        while len(self.bytes) < count:
            more = self.socket.recv(65536)
            check(more, f"the connection ended in a body: {self.bytes!r}")
            self.bytes += more
        found, self.bytes = self.bytes[:count], self.bytes[count:]
        return found

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


def post(path, body, *fields, length=True):
    lines = [f"POST {path} HTTP/1.1", "Host: peer", "Content-Type: application/json", *fields]
    if length:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def greeting(told):
    status, _, body = told
    check_equal((status, json.loads(body)), (200, {"message": "Hello, x!"}))


def kept(server):
    """One connection serves many requests. Their bodies have a length or are chunked, and bytes may arrive one by one."""
    with Connection(server) as one:
        for _ in range(3):
            one.send(post(GREETER, HELLO))
            greeting(one.answer())
        one.send(post(GREETER, b"", "Transfer-Encoding: chunked", length=False), "5\r\n", HELLO[:5], "\r\n")
        one.send(f"{len(HELLO) - 5:x}\r\n", HELLO[5:], "\r\n0\r\nX-Trailer: 1\r\n\r\n")
        greeting(one.answer())
        for byte in post(GREETER, HELLO):
            one.send(bytes([byte]))
        greeting(one.answer())
        one.send(post(GREETER, HELLO) * 5)
        for _ in range(5):
            greeting(one.answer())
        one.send(f"GET {GREETER}?encoding=json&message=%7B%22name%22:%22x%22%7D HTTP/1.1\r\nHost: peer\r\n\r\n")
        greeting(one.answer())


def with_http_client(server):
    connection = http.client.HTTPConnection(server.address, timeout=10)
    for body in (HELLO, iter([HELLO[:3], HELLO[3:]])):
        connection.request("POST", GREETER, body, JSON, encode_chunked=True)
        answer = connection.getresponse()
        greeting((answer.status, {}, answer.read()))
    connection.request("POST", UNARY, bytes(3 << 20), {"Content-Type": "application/proto", "X-Http1-Length": "chunked"})
    answer = connection.getresponse()
    check_equal((answer.getheader("transfer-encoding"), answer.read()), ("chunked", bytes(3 << 20)))
    connection.close()


def delimited(server, kind):
    """x-http1-length selects how the end of the body is marked, for a unary call and for a stream."""
    for path, type_, body in ((UNARY, "application/proto", HELLO),
                              ("/penstock.Echo/ServerStream", "application/connect+proto", envelope(HELLO))):
        with Connection(server) as one:
            one.send(post(path, body, f"X-Http1-Length: {kind}", "X-Count: 1").replace(
                b"application/json", type_.encode()))
            status, fields, answer = one.answer()
            check_equal(status, 200)
            check_equal(("content-length" in fields, "transfer-encoding" in fields, fields.get("connection")),
                        (kind == "length", kind == "chunked", "close" if kind == "close" else None), fields)
            check_equal(answer, body if path == UNARY else body + envelope(b"{}", 2))


def closed(server):
    for fields in (["Connection: close"], ["X-Http1-Close: 1"], ["Connection: foo, Close"]):
        with Connection(server) as one:
            one.send(post(GREETER, HELLO, *fields))
            told = one.answer()
            greeting(told)
            check_equal(told[1]["connection"], "close")
            check_equal(one.rest(), b"")
    with Connection(server) as one:
        one.send(post(GREETER, HELLO).replace(b"HTTP/1.1", b"HTTP/1.0"))
        greeting(one.answer())
        check_equal(one.rest(), b"")


def expected(server):
    """100 (Continue) is sent before the client sends the body, unless the answer is already known."""
    with Connection(server) as one:
        for _ in range(2):
            one.send(post(GREETER, HELLO, "Expect: 100-continue")[:-len(HELLO)])
            check_equal(one.until(b"\r\n\r\n"), b"HTTP/1.1 100 Continue\r\n\r\n")
            one.send(HELLO)
            greeting(one.answer())
        one.send(post(BIDI, b"", "Expect: 100-continue", "X-After: 0").replace(b"/json", b"/connect+json"))
        status, fields, body = one.answer()
        check_equal((status, fields["connection"], body), (200, "close", envelope(b"{}", 2)))
        check_equal(one.rest(), b"")


def early(server):
    """The server may answer before the request has ended. When it has ended, the connection serves the next request."""
    with Connection(server) as one:
        head = post(BIDI, b"", "X-After: 1", "X-Status: 9", "Transfer-Encoding: chunked", length=False)
        one.send(head.replace(b"/json", b"/connect+json"), "7\r\n", envelope(b"hi"), "\r\n")
        status, _, body = one.answer()
        end = envelope(b'{"error":{"code":"failed_precondition"}}', 2)
        check_equal((status, body), (200, envelope(b"hi") + end))
        one.send("7\r\n", envelope(b"ho"), "\r\n0\r\n\r\n", post(GREETER, HELLO))
        greeting(one.answer())


def duplex(server):
    """Each message of a stream is answered when it arrives."""
    with Connection(server) as one:
        head = post(BIDI, b"", "Transfer-Encoding: chunked", length=False)
        one.send(head.replace(b"/json", b"/connect+json"))
        status, fields = one.head()
        check_equal((status, fields["transfer-encoding"]), (200, "chunked"))
        for text in (b"one", b"two"):
            one.send("8\r\n", envelope(text), "\r\n")
            one.until(envelope(text))
        one.send("0\r\n\r\n")
        one.until(envelope(b"{}", 2) + b"\r\n0\r\n\r\n")


def large(server):
    """A client that writes the whole request before it reads gets its answer, even if the answer is larger than all
    buffers."""
    body = b"".join(envelope(bytes(100_000)) for _ in range(100))
    connection = http.client.HTTPConnection(server.address, timeout=30)
    connection.request("POST", "/penstock.Echo/ClientStream", body, {"Content-Type": "application/connect+proto"})
    answer = connection.getresponse().read()
    check_equal(answer, envelope(bytes(10_000_000)) + envelope(b"{}", 2), "the answer")
    connection.close()


BAD = {
    "bare LF": (400, b"POST / HTTP/1.1\nHost: a\r\n\r\n"),
    "bare LF in a field": (400, b"POST / HTTP/1.1\r\nHost: a\nContent-Length: 0\r\n\r\n"),
    "bare CR": (400, b"POST / HTTP/1.1\r\nHost: a\rContent-Length: 0\r\n\r\n"),
    "empty line before a request": (400, b"\r\nPOST / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "two spaces": (400, b"POST  / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "absolute form": (400, b"POST http://a/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    "HTTP/2.0": (505, b"POST / HTTP/2.0\r\nHost: a\r\n\r\n"),
    "no version": (400, b"POST /\r\nHost: a\r\n\r\n"),
    "no host": (400, b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"),
    "two hosts": (400, b"POST / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"),
    "space before the colon": (400, b"POST / HTTP/1.1\r\nHost : a\r\n\r\n"),
    "folding": (400, b"POST / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n"),
    "no colon": (400, b"POST / HTTP/1.1\r\nHost\r\n\r\n"),
    "NUL": (400, b"POST / HTTP/1.1\r\nHost: a\0b\r\n\r\n"),
    "control character": (400, b"POST / HTTP/1.1\r\nHost: a\x01b\r\n\r\n"),
    "two lengths": (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n"),
    "list of lengths": (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n"),
    "signed length": (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n"),
    "length and chunked": (
        400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "gzip, chunked": (501, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"),
    "chunk size": (400, post(GREETER, b"", "Transfer-Encoding: chunked", length=False) + b"0x1\r\n"),
    "chunk without CRLF": (400, post(GREETER, b"", "Transfer-Encoding: chunked", length=False) + b"1\r\nabc"),
    "expectation": (417, b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n"),
    "long line": (431, b"POST /" + b"a" * 200_000),
    "long head": (431, b"POST / HTTP/1.1\r\n" + b"A: " + b"b" * 1000 + b"\r\n" + (b"A: " + b"b" * 1000 + b"\r\n") * 2000),
    "TLS": (400, bytes.fromhex("16030100050100000100")),
}


def refused(server, name):
    """A malformed request is answered with the expected HTTP status, and the connection closes."""
    status, request = BAD[name]
    with Connection(server) as one:
        one.send(request)
        told, fields, body = one.answer()
        check_equal((told, fields["connection"], one.rest()), (status, "close", b""), body)


def without_protocol(server):
    for status, method, path, type_ in (
            (415, "POST", GREETER, "text/plain"), (415, "POST", GREETER, "application/msgpack"),
            (415, "POST", GREETER, "application/connect+json"), (415, "POST", BIDI, "application/json"),
            (505, "POST", GREETER, "application/grpc"), (405, "PUT", GREETER, "application/json"),
            (405, "GET", "/grpc.testing.TestService/UnaryCall?encoding=json&message={}", "a"), (404, "GET", "/", "a")):
        connection = http.client.HTTPConnection(server.address, timeout=10)
        connection.request(method, path, b"", {"Content-Type": type_})
        answer = connection.getresponse()
        check_equal((answer.status, answer.read()), (status, b""), path)
        if status == 415:
            check(re.search("application/(connect[+])?json", answer.getheader("accept-post")), answer.headers)
        if status == 405:
            check("POST" in answer.getheader("allow"), answer.headers)
        connection.close()


def told(server):
    """--print-requests prints the protocol, the HTTP version and the method of a call."""
    with Connection(server) as one:
        one.send(post(f"{GREETER}?told", HELLO))
        greeting(one.answer())
    line = server.told(path=f"{GREETER}?told")
    found = {key: line[key] for key in ("protocol", "http", "method", "status", "messages_in", "messages_out")}
    check_equal(found, {"protocol": "connect", "http": "1.1", "method": "POST", "status": 0, "messages_in": 1,
                        "messages_out": 1})


def cancelled(server):
    """When a client closes its connection, its call ends."""
    with Connection(server) as one:
        one.send(post("/grpc.health.v1.Health/Watch?gone", envelope(b"{}")).replace(b"/json", b"/connect+json"))
        one.until(b"SERVING")
    check("status" not in server.told(path="/grpc.health.v1.Health/Watch?gone"), "the call has a status")


def deadline(server):
    with Connection(server) as one:
        one.send(post(GREETER, HELLO, "Connect-Timeout-Ms: 50", "X-Delay-Ms: 60000"))
        status, _, body = one.answer()
        check_equal((status, json.loads(body)["code"]), (504, "deadline_exceeded"))


def headers_only(server):
    """A gRPC-Web call that ends without a message has its status in the headers. No bytes follow them."""
    for type_ in (b"grpc-web+proto", b"grpc-web-text+proto"):
        with Connection(server) as one:
            body = base64.b64encode(envelope(HELLO)) if b"text" in type_ else envelope(HELLO)
            one.send(post(UNARY, body, "X-Status: 5", "X-Message: gone").replace(b"json", type_))
            status, fields, body = one.answer()
            check_equal((status, fields["grpc-status"], fields["grpc-message"], body), (200, "5", "gone", b""))
            one.send(post(GREETER, HELLO))
            greeting(one.answer())


def run(suite, server):
    for test in (kept, with_http_client, closed, expected, early, duplex, large, without_protocol, told, cancelled, deadline,
                 headers_only):
        suite.run(f"http1 {test.__name__}", test, server)
    for kind in ("length", "chunked", "close"):
        suite.run(f"http1 delimited {kind}", delimited, server, kind)
    for name in BAD:
        suite.run(f"http1 refused {name}", refused, server, name)
