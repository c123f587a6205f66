"""Messages compressed by zstd: docs/protocols.md, "On the wire"."""

from __future__ import annotations

import ctypes
import http.server
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

import penstock
from helpers import unary, with_new_grpcio
from penstock import StatusCode

WINDOW_LOG = 101
LIBRARY = ctypes.CDLL("libzstd.so.1")
for name in ("ZSTD_createCCtx", "ZSTD_compressBound", "ZSTD_compress2", "ZSTD_decompress"):
    getattr(LIBRARY, name).restype = ctypes.c_size_t


def packed(data: bytes, window_log: int = 0) -> bytes:
    context = ctypes.c_void_p(LIBRARY.ZSTD_createCCtx())
    LIBRARY.ZSTD_CCtx_setParameter(context, WINDOW_LOG, window_log)
    out = ctypes.create_string_buffer(LIBRARY.ZSTD_compressBound(ctypes.c_size_t(len(data))))
    sizes = ctypes.c_size_t(len(out)), ctypes.c_size_t(len(data))
    count = LIBRARY.ZSTD_compress2(context, out, sizes[0], data, sizes[1])
    LIBRARY.ZSTD_freeCCtx(context)
    return out.raw[:count]


def unpacked(data: bytes, most: int = 64 << 20) -> bytes:
    out = ctypes.create_string_buffer(most)
    count = LIBRARY.ZSTD_decompress(out, ctypes.c_size_t(most), data, ctypes.c_size_t(len(data)))
    assert count <= most, "not valid zstd"
    return out.raw[:count]


class Server(http.server.ThreadingHTTPServer):
    """Answers each call of Connect or gRPC-Web with its message, or with the bytes in ``answer``."""

    def __init__(self) -> None:
        self.answer = b""
        # The encoding of each request, the encodings that its client accepts, and the size of its message as sent.
        self.seen: List[Tuple[str, str, int]] = []
        super().__init__(("127.0.0.1", 0), Handler)
        self.target = f"127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        kind = str(self.headers["content-type"])
        body = self.body()
        if kind == "application/grpc-web+proto":
            encoding, accepts = self.headers["grpc-encoding"] or "", self.headers["grpc-accept-encoding"]
            flag, message = body[0], body[5:]
            assert len(message) == int.from_bytes(body[1:5], "big")
        else:
            encoding, accepts = self.headers["content-encoding"] or "", self.headers["accept-encoding"]
            flag, message = int(encoding != ""), body
        self.server.seen.append((encoding, accepts, len(message)))
        answer = self.server.answer or packed(unpacked(message) if flag else message)
        self.send_response(200)
        self.send_header("content-type", kind)
        if kind == "application/grpc-web+proto":
            self.send_header("grpc-encoding", "zstd")
            answer = b"\x01" + len(answer).to_bytes(4, "big") + answer + b"\x80\x00\x00\x00\x10grpc-status: 0\r\n"
        else:
            self.send_header("content-encoding", "zstd")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def body(self) -> bytes:
        if "content-length" in self.headers:
            return self.rfile.read(int(self.headers["content-length"]))
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def log_request(self, *_: Any) -> None:
        pass


@pytest.fixture
def zstd_server() -> Iterator[Server]:
    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def channel_to(server: Server, protocol: str = "connect", **options: Any) -> penstock.Channel:
    options = {"protocol": protocol, "compression": "zstd", **options}
    return penstock.Channel(server.target, tls=False, options=options)


@pytest.mark.parametrize("protocol", ["connect", "grpc-web"])
def test_messages_both_ways(zstd_server: Server, protocol: str) -> None:
    large = bytes(range(256)) * 40_000
    with channel_to(zstd_server, protocol, max_receive_message_bytes=len(large)) as channel:
        for data in (b"", b"x", b"abc" * 100, large, os.urandom(300_000)):
            assert unary(channel, data) == data
        # A message that compression makes longer is sent as it is; so is one of a call that does not compress.
        assert unary(channel, b"abc" * 100, compression="identity") == b"abc" * 100
    encodings, accepted, sizes = zip(*zstd_server.seen)
    assert set(accepted) == {"zstd,gzip,deflate" if protocol == "connect" else "zstd,gzip,deflate,identity"}
    assert sizes[2] < 100
    assert sizes[3] < len(large) // 100
    assert encodings[3] == "zstd"
    assert (encodings[5], sizes[5]) == ("", 300)


def test_a_call_or_an_interceptor_may_choose_it(zstd_server: Server) -> None:
    """The channel itself does not accept it then."""

    class Choosing(penstock.Interceptor):
        def on_start(self, hop: penstock.Hop) -> None:
            hop.compression = "zstd"

    data = b"abc" * 100
    with channel_to(zstd_server, compression="gzip") as channel:
        assert unary(channel, data, compression="zstd") == data
        channel.add_interceptor(Choosing())
        assert unary(channel, data) == data
    assert [one[:2] for one in zstd_server.seen] == [("zstd", "gzip,deflate")] * 2


def failure(server: Server, answer: bytes, **options: Any) -> Tuple[StatusCode, str]:
    server.answer = answer
    with channel_to(server, **options) as channel, pytest.raises(penstock.RpcError) as caught:
        unary(channel)
    return caught.value.code(), caught.value.details() or ""


def test_answers_that_are_wrong_or_too_large(zstd_server: Server) -> None:
    whole = packed(b"abc" * 1000)
    for wrong in (whole[:-1], whole[:5], b"no zstd at all", whole + b"x", whole[:-4] + b"\xff" * 4):
        code, words = failure(zstd_server, wrong)
        assert code is StatusCode.INTERNAL
        assert "is not valid zstd" in words
    # A bomb: 16 KiB for 512 MiB.
    bomb = packed(bytes(1 << 20)) * 512
    code, words = failure(zstd_server, bomb)
    assert code is StatusCode.RESOURCE_EXHAUSTED
    assert failure(zstd_server, packed(bytes(1001)), max_receive_message_bytes=1000)[0] is code
    # A window of 16 MiB.
    code, words = failure(zstd_server, packed(os.urandom(1 << 25), 24), max_receive_message_bytes=1 << 26)
    assert code is StatusCode.INTERNAL
    assert "is not valid zstd" in words


def test_answers_with_several_frames_and_of_the_largest_size(zstd_server: Server) -> None:
    zstd_server.answer = packed(b"one") + packed(b"") + packed(b"two")
    with channel_to(zstd_server, max_receive_message_bytes=40) as channel:
        assert unary(channel) == b"onetwo"
    # The window of this message is the largest that is allowed, 8 MiB.
    data = os.urandom(1 << 24)
    zstd_server.answer = packed(data, 23)
    with channel_to(zstd_server, max_receive_message_bytes=len(zstd_server.answer)) as channel:
        assert unary(channel) == data


@with_new_grpcio
def test_a_server_without_it_says_so(server: str) -> None:
    channel = penstock.Channel(server, tls=False, options={"compression": "zstd"})
    with channel, pytest.raises(penstock.RpcError, match="grpc-encoding") as caught:
        unary(channel, b"abc" * 100)
    assert caught.value.code() is StatusCode.INTERNAL


ASKED = """
import sys
import penstock
penstock.load(sys.argv[1])
assert "libzstd" not in open("/proc/self/maps").read()
for make in (lambda: penstock.Channel("a:1", options={"compression": "zstd"}),
             lambda: penstock.Channel("a:1").unary_unary("/a/b")(b"", compression="zstd")):
    try:
        make()
    except penstock.Error as error:
        print(error)
"""


def test_a_system_without_the_library(tmp_path: Path) -> None:
    """It is loaded only where a program asks for it."""
    (tmp_path / "libzstd.so.1").write_text("no library")
    environment: Dict[str, str] = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    loads = "import sys, penstock; penstock.load(sys.argv[1]); print('libzstd' in open('/proc/self/maps').read())"
    if "True" in subprocess.check_output([sys.executable, "-c", loads, penstock.load()], text=True):
        pytest.skip("the system's OpenSSL loads libzstd.so.1 itself")
    command = [sys.executable, "-c", ASKED, penstock.load()]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout
    words = "$.compression: the system has no libzstd.so.1 (PENSTOCK_E_UNSUPPORTED)"
    assert told.splitlines() == [words, words]
