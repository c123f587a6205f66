"""A token server of OAuth 2.0 for the tests, over HTTP/1.1 or HTTP/2, with TLS or without."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
import subprocess
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

# An answer: the HTTP status, the body as it is or to be written as JSON, and further header fields.
Answer = Tuple[int, Any, Dict[str, str]]


def token(name: str, **more: object) -> Answer:
    return 200, {"access_token": name, "token_type": "Bearer", "expires_in": 3600, **more}, {}


class TokenServer:
    """Gives the ``answers`` in turn, the last one again and again; ``forms`` has the requests."""

    def __init__(self, port: int) -> None:
        self.target = f"127.0.0.1:{port}"
        self.answers: List[Answer] = [token("token-1")]
        self.forms: List[Dict[str, str]] = []
        self.headers: List[Dict[str, str]] = []
        self.paths: List[str] = []

    def take(self, path: str, headers: Dict[str, str], body: bytes) -> Tuple[int, bytes, Dict[str, str]]:
        assert headers["content-type"] == "application/x-www-form-urlencoded"
        fields = urllib.parse.parse_qsl(body.decode("ascii"), keep_blank_values=True, strict_parsing=True)
        self.forms.append(dict(fields))
        self.headers.append(headers)
        self.paths.append(path)
        status, content, more = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return status, content if isinstance(content, bytes) else json.dumps(content).encode(), more


@contextlib.contextmanager
def running_token_server(certificates: Optional[Path] = None) -> Iterator[TokenServer]:
    """A server of HTTP/1.1; with certificates it has TLS."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers["content-length"]))
            status, content, more = made.take(self.path, headers, body)
            self.send_response(status)
            for name, value in {"content-type": "application/json", **more}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if certificates is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
            context.set_alpn_protocols(["http/1.1"])
            server.socket = context.wrap_socket(server.socket, server_side=True)
        made = TokenServer(server.server_port)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def running_http2_server() -> Iterator[TokenServer]:
    """A server of HTTP/2 without TLS, which serves one connection."""
    from h2.config import H2Configuration
    from h2.connection import H2Connection
    from h2.events import DataReceived, RequestReceived, StreamEnded

    def serve() -> None:
        accepted, _ = listening.accept()
        connection = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        headers: Dict[int, Dict[str, str]] = {}
        bodies: Dict[int, bytes] = {}
        with accepted:
            connection.initiate_connection()
            accepted.sendall(connection.data_to_send())
            while data := accepted.recv(65536):
                for event in connection.receive_data(data):
                    if isinstance(event, RequestReceived):
                        headers[event.stream_id] = dict(event.headers)
                        bodies[event.stream_id] = b""
                    elif isinstance(event, DataReceived):
                        bodies[event.stream_id] += event.data
                    elif isinstance(event, StreamEnded):
                        fields, number = headers[event.stream_id], event.stream_id
                        status, content, more = made.take(fields[":path"], fields, bodies[number])
                        answer = [(":status", str(status)), *more.items()]
                        connection.send_headers(number, answer, end_stream=not content)
                        if content:
                            connection.send_data(number, content, end_stream=True)
                accepted.sendall(connection.data_to_send())

    with socket.create_server(("127.0.0.1", 0)) as listening:
        made = TokenServer(listening.getsockname()[1])
        thread = threading.Thread(target=serve)
        thread.start()
        yield made
        thread.join()


def decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def opened(signed: str, key: Path) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """The header and the claims of a JSON Web Token, whose signature is checked by the openssl command with
    ``key``."""
    header, claims, signature = signed.split(".")
    head: Dict[str, Any] = json.loads(decoded(header))
    raw = decoded(signature)
    if head["alg"] == "ES256":
        assert len(raw) == 64
        raw = sequence(raw[:32], raw[32:])
    folder = key.parent
    (folder / "signature").write_bytes(raw)
    (folder / "signed").write_text(f"{header}.{claims}")
    command = ["openssl", "dgst", "-sha256", "-prverify", key.name, "-signature", "signature", "signed"]
    assert subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout == b"Verified OK\n"
    return head, json.loads(decoded(claims))


def sequence(*numbers: bytes) -> bytes:
    """An ASN.1 sequence of positive numbers in DER."""
    parts = b""
    for number in numbers:
        digits = number.lstrip(b"\0")
        digits = b"\0" + digits if digits[:1] >= b"\x80" else digits
        parts += bytes([2, len(digits)]) + digits
    return bytes([0x30, len(parts)]) + parts
