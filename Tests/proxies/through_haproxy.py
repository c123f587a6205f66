"""haproxy in front of two servers: HTTP/2 in cleartext and over TLS, and a plain TCP proxy."""

import pathlib
import shutil
import signal
import socket

from harness import Process, check
from servers import Port, children, wait_gone

CONFIGURATION = """
global
  stats socket {folder}/admin level admin expose-fd listeners
  hard-stop-after 10s
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend plain
  bind {plain} proto h2
  default_backend servers
frontend secure
  bind {tls} ssl crt {folder}/server.pem alpn h2
  default_backend servers
backend servers
  balance roundrobin
  {servers}
frontend bytes
  mode tcp
  timeout client 500ms
  bind {tcp}
  default_backend tcp
backend tcp
  mode tcp
  {tcp_servers}
"""


class Haproxy:
    def __init__(self, folder, certificates, *servers):
        self.folder = pathlib.Path(folder) / "haproxy"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        (self.folder / "server.pem").write_text("".join(
            pathlib.Path(certificates.path(name)).read_text() for name in ("server.pem", "server.key")))
        self.plain, self.tls, self.tcp = Port(), Port(), Port()
        self.configuration = self.folder / "haproxy.cfg"
        self.configuration.write_text(CONFIGURATION.format(
            folder=self.folder, plain=self.plain.address, tls=self.tls.address, tcp=self.tcp.address,
            servers="\n  ".join(f"server s{number} {server} proto h2" for number, server in enumerate(servers)),
            tcp_servers="\n  ".join(f"server s{number} {server}" for number, server in enumerate(servers))))
        self.begin()

    def begin(self):
        program = shutil.which("haproxy") or "/usr/sbin/haproxy"
        self.process = Process([program, "-W", "-db", "-f", self.configuration])
        self.loaded()

    def reload(self):
        """Reloads: a new worker gets the listening sockets; the old one sends GOAWAY, and ends with its last connection.
        Returns when the old worker has ended."""
        old = children(self.process)
        self.process.signal(signal.SIGUSR2)
        self.loaded()
        wait_gone(old)

    def loaded(self):
        check(self.process.line(lambda line: "Loading success" in line), "haproxy has ended:", self.process.seen[-5:])

    def say(self, command):
        """Gives haproxy a command by its admin socket."""
        with socket.socket(socket.AF_UNIX) as admin:
            admin.settimeout(20)
            admin.connect(str(self.folder / "admin"))
            admin.sendall(command.encode() + b"\n")
            answer = b"".join(iter(lambda: admin.recv(65536), b"")).decode().strip()
            check(not answer, f"{command}: {answer}")

    def end(self, gently=True):
        self.process.signal(signal.SIGUSR1 if gently else signal.SIGTERM)
        self.process.wait(20)
        self.process.end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.end()
