"""Tests of the HTTP/1.1 steps of scripts, and of the scripts in Tests/faults whose answers a client has to accept."""

import contextlib
import re
import socket

from harness import ROOT, check, check_equal, peer
from http1 import GREETER, HELLO, Connection, envelope, post

FAULTS = ROOT / "Tests" / "faults"
WORDS = r"""
# Each step, and the bytes that it sends.
expect request-head
response 200 open
  X-Field: a\tb
raw text="\r\n"
expect request
response 404
  X-Long: \*5
  Content-Length: 0
response abc cut=12
chunk message="pong" text="\x00" hex=ff00 zeros=2
chunk size="5;x" text="a" times=2
chunk envelope=130:"{}"
last-chunk
last-chunk open
  A: b
expect request
close
"""
SENT = (b"HTTP/1.1 200 OK\r\nX-Field: a\tb\r\n\r\n", b"HTTP/1.1 404 Not Found\r\nX-Long: aaaaa\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 abc", b"e\r\n" + envelope(b"pong") + b"\0\xff\0\0\0\r\n", b"5;x\r\na\r\n" * 2,
        b"7\r\n" + envelope(b"{}", 130) + b"\r\n", b"0\r\n\r\n", b"0\r\nA: b\r\n")


ODD = ("http1-chunks-in-all-forms", "http1-fields-of-connection", "http1-folding", "http1-length-list",
       "http1-web-compressed-empty")


def words(folder):
    path = folder / "words.script"
    path.write_text(WORDS)
    with peer("--print-requests", "--script", path) as server, Connection(server) as one:
        request = post(GREETER, HELLO)
        one.send(request[:-len(HELLO)])
        one.until(SENT[0])
        check_equal(one.bytes, b"", "bytes before the request is whole")
        one.send(HELLO)
        sent = b"".join(SENT[1:])
        check_equal(one.exactly(len(sent)), sent)
        # After a malformed request, the script gets no events of further requests.
        one.send(request, "garbage\n", request)
        check_equal(one.rest(), b"")
        events = [server.told(event=...)["event"] for _ in range(5)]
        check_equal(events, ["connected", "request-head", "request", "request-head", "request"])


def refused(folder):
    """Words that a step does not take make the script malformed."""
    for line in ("response", "chunk size=5", "expect requests", 'raw envelope=256:"a"', "last-chunk\n  no colon"):
        path = folder / "refused.script"
        path.write_text(line + "\n")
        try:
            with peer("--script", path):
                pass
        except Exception as failure:
            check("not understood" in str(failure), failure)
        else:
            check(False, f"{line!r} was understood")


def plays(path):
    """A script whose calls end with OK sends a complete answer, which a simple strict parser accepts."""
    web = "protocol=grpc-web" in path.read_text()
    with peer("--script", path) as server, Connection(server) as one:
        one.send(post("/penstock.Echo/Bidi", envelope(b"ping")))
        status = 100
        while status < 200:
            status, fields = one.head()
        check_equal(status, 200)
        if "transfer-encoding" in fields:
            one.bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + one.bytes
            body = one.answer()[2]
        elif "content-length" in fields:
            body = one.exactly(int(fields["content-length"]))
        else:
            body = one.rest()
        if web:
            check(b"grpc-status" in body.lower() or fields["content-type"].startswith("application/grpc-web-text"), body)


def ends(path):
    """Every script ends when a client sends one request and half-closes."""
    with peer("--print-requests", "--script", path) as server, Connection(server) as one:
        one.send(post("/penstock.Echo/Bidi", envelope(b"ping")))
        with contextlib.suppress(ConnectionError, OSError):
            one.socket.shutdown(socket.SHUT_WR)
            one.rest()
        server.told(event=...)


def run(suite, folder):
    suite.run("scripts words", words, folder)
    suite.run("scripts refused", refused, folder)
    for path in sorted(FAULTS.glob("http1-*.script")):
        text = path.read_text()
        if "http=1.1" not in text or "\ndeaf" in text:
            continue
        suite.run(f"scripts {path.stem}", ends, path)
        # The parser of this file is too simple for the scripts in ODD.
        if re.search("(unary|bidi)=OK", text) and path.stem not in ODD:
            suite.run(f"scripts plays {path.stem}", plays, path)
