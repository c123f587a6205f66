"""The servers and proxies of this suite, and the routes through them."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import sys

import harness
from calls import CONNECT, GRPC, TEXT, WEB, Route
from harness import ROOT, Process, check
from servers import Port
from through_envoy import Envoy, typed

HERE = ROOT / "Tests" / "connect"
# The features of connectrpc on a server that passes on each part of a body as soon as it arrives.
ALL = frozenset({"c", "streams", "up", "json", "state", "gzip", "zstd", "headers first", "client address", "resets", "empty"})
GET = frozenset({"get"})


class Server(Process):
    """A server of this suite. `address`: where it listens. `tls`: where it listens with TLS."""

    def __init__(self, program, *options):
        super().__init__([sys.executable, HERE / program, *options], environment())
        try:
            told = self.told(address=...)
        except harness.Failure:
            self.end()
            raise
        self.address, self.tls = told["address"], told.get("tls")


def server(kind, *options):
    return Server("server.py", kind, *options)


def grpcio():
    return Server("grpcio_server.py")


def environment():
    return {"PYTHONPATH": f"{harness.GENERATED}:{HERE}:{ROOT / 'Tests' / 'interop'}"}


class Pyvoy(Process):
    """Envoy that runs the application in its own process (pyvoy)."""

    def __init__(self, certificates, interface="asgi"):
        command = [pathlib.Path(sys.executable).parent / "pyvoy", f"apps:{interface}", "--port", "0", "--interface", interface,
                   "--tls-port", "0", "--tls-disable-http3", "--tls-key", certificates.path("server.key"),
                   "--tls-cert", certificates.path("server.pem")]
        super().__init__(command, environment())
        line = self.line(lambda line: "listening on" in line)
        check(line is not None, "pyvoy has ended:", self.seen[-5:])
        found = re.search(r"listening on (127\.0\.0\.1:\d+) \(TLS on (\d+)\)", line)
        check(found, line)
        self.address, self.tls = found.group(1), f"127.0.0.1:{found.group(2)}"


class Translating(Envoy):
    """Envoy that translates gRPC-Web and Connect to gRPC, over HTTP/1.1 and HTTP/2."""

    codec = "AUTO"
    alpn = ("h2", "http/1.1")
    filters = ({"name": "connect", "typed_config": typed("filters.http.connect_grpc_bridge.v3.FilterConfig")},
               {"name": "web", "typed_config": typed("filters.http.grpc_web.v3.GrpcWeb")})


NGINX = """
{user} daemon off; master_process on; worker_processes 1; worker_shutdown_timeout 10s;
pid {folder}/nginx.pid; error_log {folder}/error.log warn;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_max_body_size 0; large_client_header_buffers 4 32k; proxy_buffers 8 32k; proxy_buffer_size 32k;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host; keepalive_requests 1000000;
  upstream server {{ server {server}; keepalive 64; }}
  upstream away {{ server {away}; }}
  server {{
    listen {buffered}; listen {tls} ssl;
    ssl_certificate {certificates}/server.pem; ssl_certificate_key {certificates}/server.key;
    location / {{ proxy_pass http://server; }}
    location /away/ {{ proxy_pass http://away/; }}
    location /small/ {{ client_max_body_size 1k; proxy_pass http://server/; }}
    location /slow/ {{ proxy_read_timeout 200ms; proxy_pass http://server/; }}
  }}
  server {{
    listen {unbuffered};
    location / {{ proxy_buffering off; proxy_request_buffering off; proxy_pass http://server; }}
  }}
  server {{
    listen {few}; keepalive_requests 3;
    location / {{ proxy_pass http://server; }}
  }}
  server {{
    listen {short}; keepalive_timeout 1s;
    location / {{ proxy_pass http://server; }}
  }}
}}
"""


class Nginx:
    """nginx as an ordinary HTTP proxy, before a server of HTTP/1.1."""

    PORTS = ("buffered", "unbuffered", "tls", "few", "short", "away")

    def __init__(self, folder, certificates, server):
        self.folder = pathlib.Path(folder) / "plain-nginx"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.ports = {name: Port() for name in self.PORTS}
        (self.folder / "nginx.conf").write_text(NGINX.format(
            folder=self.folder, certificates=certificates.folder, server=server,
            # nginx's workers write bodies into the folder.
            user="user root;" if os.geteuid() == 0 else "",
            **{name: port.address for name, port in self.ports.items()}))
        self.process = Process([self.program(), "-p", self.folder, "-c", self.folder / "nginx.conf", "-e",
                                self.folder / "error.log"])
        for name, port in self.ports.items():
            if name != "away":
                port.wait(self.process)

    @staticmethod
    def program():
        return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")

    def address(self, name):
        return self.ports[name].address

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            self.process.signal(signal.SIGQUIT)
        self.process.end()
        for port in self.ports.values():
            port.holder.close()


# ---- Routes ----


def route(name, address, protocol, http, can, tls=None, **options):
    """`http`: the HTTP version between the client and the next hop, as a value of the channel's option."""
    chosen = {"http": http} if http else {}
    return Route(name, f"{'https' if tls else 'http'}://{address}", protocol, {**chosen, **options}, frozenset(can), tls=tls)


def over(version, can):
    """Adds the feature "full" over HTTP/2. Over HTTP/1.1, bidi calls are half-duplex."""
    return can | ({"full"} if version == "2" else set())


__all__ = ["ALL", "CONNECT", "GET", "GRPC", "TEXT", "WEB", "Nginx", "Pyvoy", "Translating", "grpcio", "over", "route", "server"]
