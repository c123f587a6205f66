"""A server for gRPC, gRPC-Web and Connect over HTTP/2 that knows one compression, x-bz2; the library does not."""

from __future__ import annotations

import base64
import bz2
import re
import socket
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional
from urllib.parse import parse_qs

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded

NAME = "x-bz2"
# The content-type of each protocol, and its header fields for the compression and the accepted compressions.
FIELDS = {
    "application/grpc": ("grpc-encoding", "grpc-accept-encoding"),
    "application/grpc-web+proto": ("grpc-encoding", "grpc-accept-encoding"),
    "application/grpc-web-text+proto": ("grpc-encoding", "grpc-accept-encoding"),
    "application/connect+proto": ("connect-content-encoding", "connect-accept-encoding"),
    "application/proto": ("content-encoding", "accept-encoding"),
}
# The answer's messages, by the last part of the method's path.
ANSWERS: Dict[str, Callable[[List[bytes]], List[bytes]]] = {
    "Unary": lambda sent: sent,
    "Each": lambda sent: sent * 3,
    "Join": lambda sent: [b"".join(sent)],
    "Bidi": lambda sent: sent,
}


class Seen(NamedTuple):
    """A request: its HTTP method, its compression, those that its client accepts, and the sizes of its messages as
    they were sent; those of messages that are not compressed are negative."""

    http: str
    encoding: Optional[str]
    accepts: str
    sizes: List[int]


class CodedServer:
    """Answers each call compressed, or with the bytes in ``answer`` as its one compressed message."""

    def __init__(self) -> None:
        self.answer = b""
        self.seen: List[Seen] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.target = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted = self._listening.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._serve, args=[accepted], daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        connection = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        heads: Dict[int, Dict[str, str]] = {}
        bodies: Dict[int, bytes] = {}
        with accepted:
            accepted.sendall(connection.data_to_send())
            while data := accepted.recv(65536):
                for event in connection.receive_data(data):
                    stream: Any = getattr(event, "stream_id", None)
                    if isinstance(event, RequestReceived):
                        heads[stream], bodies[stream] = dict(event.headers), b""
                    elif isinstance(event, DataReceived):
                        bodies[stream] += event.data
                        connection.acknowledge_received_data(event.flow_controlled_length, stream)
                    elif isinstance(event, StreamEnded):
                        self._answer(connection, stream, heads.pop(stream), bodies.pop(stream))
                accepted.sendall(connection.data_to_send())

    def _answer(self, connection: H2Connection, stream: int, head: Dict[str, str], body: bytes) -> None:
        path, _, query = head[":path"].partition("?")
        kind = head.get("content-type", "application/proto")
        encoding_name, accepts_name = FIELDS[kind]
        given = parse_qs(query)
        encoding = given.get("compression", [head.get(encoding_name)])[0]
        if query:
            body = base64.urlsafe_b64decode(given["message"][0] + "==")
        if "-text" in kind:
            # A piece that has waited for another one ends with padding, in the middle of the body, too.
            body = b"".join(base64.b64decode(piece) for piece in re.findall(rb"[^=]+=*", body))
        packed = [(int(encoding == NAME), body)] if kind == "application/proto" else list(envelopes(body))
        sizes = [len(message) if flag else -len(message) for flag, message in packed]
        self.seen.append(Seen(head[":method"], encoding, head[accepts_name], sizes))
        assert all(encoding == NAME for flag, _ in packed if flag)
        sent = [bz2.decompress(message) if flag and message else message for flag, message in packed]
        answers = [self.answer] if self.answer else [bz2.compress(one) for one in ANSWERS[path.split("/")[-1]](sent)]
        fields = [(":status", "200"), ("content-type", kind), (encoding_name, NAME)]
        data = answers[0] if kind == "application/proto" else b"".join(envelope(1, one) for one in answers)
        if "grpc-web" in kind:
            data += envelope(0x80, b"grpc-status: 0\r\n")
        elif kind == "application/connect+proto":
            # The end is compressed, too.
            data += envelope(3, bz2.compress(b"{}"))
        if "-text" in kind:
            data = base64.b64encode(data)
        connection.send_headers(stream, fields)
        for at in range(0, len(data), 16384):
            connection.send_data(stream, data[at : at + 16384])
        if kind == "application/grpc":
            connection.send_headers(stream, [("grpc-status", "0")], end_stream=True)
        else:
            connection.end_stream(stream)


def envelope(flag: int, data: bytes) -> bytes:
    return bytes([flag]) + len(data).to_bytes(4, "big") + data


def envelopes(body: bytes) -> Any:
    while body:
        size = int.from_bytes(body[1:5], "big")
        yield body[0], body[5 : 5 + size]
        body = body[5 + size :]
