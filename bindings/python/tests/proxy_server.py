"""A proxy of HTTP and of SOCKS 5 for tests, which does what the test tells it."""

from __future__ import annotations

import base64
import contextlib
import socket
import struct
import threading
from typing import Callable, Dict, List, Optional, Tuple


class EndedError(Exception):
    """The client has ended the connection, or the proxy ends it."""


class Proxy:
    """Relays connections until it is closed. ``names``: the addresses of hosts that only this proxy knows.
    ``user``: "user:password", without which it connects nobody. ``script``: gets the connection in place of the
    dialogue, and may raise `EndedError`. ``bytewise``: the proxy sends its answers one byte at a time."""

    def __init__(
        self,
        names: Optional[Dict[str, str]] = None,
        user: str = "",
        script: Optional[Callable[[socket.socket], None]] = None,
        bytewise: bool = False,
    ) -> None:
        self.names, self.user, self.script, self.bytewise = names or {}, user, script, bytewise
        # The servers that were asked for, such as "CONNECT host:port", and the heads of requests over HTTP.
        self.asked: List[str] = []
        self.heads: List[str] = []
        self._open: List[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                self._open.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, EndedError), client:
            if self.script is not None:
                self.script(client)
                return
            first = take(client, 1)
            server = self._socks(client) if first == b"\x05" else self._http(client, first)
            self._open.append(server)
            with server:
                threading.Thread(target=relay, args=(server, client), daemon=True).start()
                relay(client, server)

    def _answer(self, client: socket.socket, data: bytes) -> None:
        for piece in [data[i : i + 1] for i in range(len(data))] if self.bytewise else [data]:
            client.sendall(piece)

    def _connect(self, kind: str, host: str, port: int) -> socket.socket:
        self.asked.append(f"{kind} {host}:{port}")
        known = self.names.get(host)
        return socket.create_connection(endpoints(known) if known else (host, port))

    # ---- HTTP ----

    def _http(self, client: socket.socket, head: bytes) -> socket.socket:
        while b"\r\n\r\n" not in head:
            head += take(client, 1)
        text = head.decode()
        self.heads.append(text)
        method, target, _ = text.split("\r\n")[0].split(" ")
        wanted = "proxy-authorization: Basic " + base64.b64encode(self.user.encode()).decode()
        if self.user and wanted not in text.split("\r\n"):
            self._answer(client, b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
            raise EndedError
        if method == "CONNECT":
            host, _, port = target.rpartition(":")
            server = self._connect("CONNECT", host.strip("[]"), int(port))
            self._answer(client, b"HTTP/1.1 103 Early Hints\r\n\r\n")
            self._answer(client, b"HTTP/1.0 200 Connection established\r\nvia: 1\r\n\r\n")
            return server
        # A request in absolute form is forwarded, and those after it on this connection.
        authority, _, path = target[len("http://") :].partition("/")
        host, _, port = authority.rpartition(":")
        server = self._connect("GET", host, int(port))
        server.sendall(head.replace(target.encode(), b"/" + path.encode(), 1))
        return server

    # ---- SOCKS ----

    def _socks(self, client: socket.socket) -> socket.socket:
        methods = take(client, take(client, 1)[0])
        method = 2 if self.user else 0
        if method not in methods:
            self._answer(client, b"\x05\xff")
            raise EndedError
        self._answer(client, bytes([5, method]))
        if self.user:
            take(client, 1)
            user = take(client, take(client, 1)[0])
            password = take(client, take(client, 1)[0])
            if user + b":" + password != self.user.encode():
                self._answer(client, b"\x01\x01")
                raise EndedError
            self._answer(client, b"\x01\x00")
        _, _, _, kind = take(client, 4)
        if kind == 1:
            host = socket.inet_ntop(socket.AF_INET, take(client, 4))
        elif kind == 4:
            host = socket.inet_ntop(socket.AF_INET6, take(client, 16))
        else:
            host = take(client, take(client, 1)[0]).decode()
        (port,) = struct.unpack("!H", take(client, 2))
        server = self._connect("SOCKS", host, port)
        # The three kinds of address that the answer may have, by the length of the name.
        bound = (b"\x01" + bytes(6), b"\x03\x05proxy" + bytes(2), b"\x04" + bytes(18))[len(self.asked) % 3]
        self._answer(client, b"\x05\x00\x00" + bound)
        return server


def take(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise EndedError
        data += more
    return data


def relay(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def answering(*pieces: bytes) -> Callable[[socket.socket], None]:
    """A script that reads something, sends ``pieces``, and ends the connection. It reads on until the client has
    ended it too: otherwise the connection would be reset."""

    def script(client: socket.socket) -> None:
        client.recv(65536)
        for piece in pieces:
            client.sendall(piece)
        client.shutdown(socket.SHUT_WR)
        while client.recv(65536):
            pass

    return script


def endpoints(address: str) -> Tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
