"""Certificate authorities for the tests of TLS, by the openssl command, and servers with their certificates."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Callable, Iterator, List, Optional

from helpers import running_peer

KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
SETTINGS = """
[ca]
default_ca = own
[own]
database = {name}.index
new_certs_dir = .
serial = {name}.serial
crlnumber = {name}.crlnumber
default_md = sha256
default_crl_days = 5
policy = any
unique_subject = no
[any]
commonName = supplied
"""


def moment(days: int) -> str:
    return (datetime.now(timezone.utc) + timedelta(days=days)).strftime("%Y%m%d%H%M%SZ")


class Authority:
    """A certificate authority in a folder. The name of each thing is the beginning of the names of its files."""

    def __init__(self, folder: Path, name: str, issuer: Optional[Authority] = None, constraints: str = "") -> None:
        self.folder, self.name = folder, name
        (folder / f"{name}.cnf").write_text(SETTINGS.format(name=name))
        (folder / f"{name}.index").write_text("")
        (folder / f"{name}.crlnumber").write_text("01")
        if issuer is None:
            self._openssl("req", "-x509", *KEY, *self._files(name), "-subj", f"/CN={name}", "-days", "10")
        else:
            issuer.issue(name, "basicConstraints=critical,CA:TRUE\n" + constraints)

    @property
    def root(self) -> Path:
        return self.folder / f"{self.name}.pem"

    def _files(self, name: str) -> List[str]:
        return ["-keyout", f"{name}.key", "-out", f"{name}.pem"]

    def _openssl(self, *arguments: str) -> bytes:
        return subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True).stdout

    def _sign(self, *arguments: str) -> None:
        own = ["-config", f"{self.name}.cnf", "-cert", f"{self.name}.pem", "-keyfile", f"{self.name}.key"]
        self._openssl("ca", "-batch", "-notext", *own, *arguments)

    def issue(self, name: str, extensions: str, start: int = -1, end: int = 5) -> Path:
        """Makes NAME.key and NAME.pem; ``start`` and ``end`` of its validity are days from now."""
        self._openssl("req", "-new", *KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (self.folder / "extensions").write_text(extensions)
        times = ["-startdate", moment(start), "-enddate", moment(end), "-rand_serial"]
        self._sign("-in", f"{name}.csr", "-out", f"{name}.pem", *times, "-extfile", "extensions")
        return self.folder / f"{name}.pem"

    def server(self, name: str, start: int = -1, end: int = 5, san: str = "DNS:localhost,IP:127.0.0.1") -> Path:
        return self.issue(name, f"subjectAltName={san}", start, end)

    def revoke(self, name: str) -> None:
        self._sign("-revoke", f"{name}.pem")

    def crl(self) -> bytes:
        self._sign("-gencrl", "-out", f"{self.name}.crl")
        return (self.folder / f"{self.name}.crl").read_bytes()

    def pin(self, name: str) -> str:
        """The pin of NAME.pem, as the command of docs/tls.md makes it."""
        command = "openssl x509 -in $0.pem -pubkey -noout | openssl pkey -pubin -outform der"
        command += " | openssl dgst -sha256 -binary | openssl base64"
        shell = ["sh", "-c", command, name]
        return subprocess.run(shell, cwd=self.folder, check=True, capture_output=True, text=True).stdout.strip()


@contextlib.contextmanager
def peer(certificate: Path, client_ca: Optional[Path] = None, *more: str) -> Iterator[str]:
    """A penstock-peer with TLS; gives its target."""
    arguments = ["--tls", "--cert", str(certificate), "--key", str(certificate.with_suffix(".key")), *more]
    arguments += ["--client-ca", str(client_ca)] if client_ca else []
    with running_peer("--listen", "127.0.0.1:0", *arguments) as target:
        yield target


@contextlib.contextmanager
def handshaker(context: ssl.SSLContext) -> Iterator[str]:
    """A server by Python's ssl that does handshakes, and then waits for the client to close; gives its target."""
    over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.05)

    def serve(accepted: socket.socket) -> None:
        with contextlib.suppress(OSError), accepted:
            accepted.settimeout(20)
            with context.wrap_socket(accepted, server_side=True) as connection:
                while connection.recv(4096):
                    pass

    def accept() -> None:
        while not over.is_set():
            with contextlib.suppress(socket.timeout):
                accepted, _ = listener.accept()
                threads.append(start(lambda one=accepted: serve(one)))

    threads = [start(accept)]
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        over.set()
        for thread in threads:
            thread.join(30)
        listener.close()


def start(action: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread
