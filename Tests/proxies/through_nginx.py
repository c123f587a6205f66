"""nginx with grpc_pass in front of two servers."""

import pathlib
import shutil
import signal

from harness import Process
from servers import Port, children, wait_gone

CONFIGURATION = """
daemon off; master_process on; worker_processes 1; worker_shutdown_timeout 10s;
pid {folder}/nginx.pid; error_log {folder}/error.log warn;
events {{ worker_connections 512; }}
http {{
  access_log off; client_max_body_size 0; large_client_header_buffers 4 32k;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream servers {{ {servers} keepalive 16; }}
  server {{
    listen {plain} http2; listen {tls} ssl http2; keepalive_requests {requests}; http2_max_concurrent_streams {streams};
    ssl_certificate {certificates}/server.pem; ssl_certificate_key {certificates}/server.key;
    location / {{ grpc_pass grpc://servers; grpc_next_upstream off; }}
  }}
}}
"""


class Nginx:
    def __init__(self, folder, certificates, *servers, requests=1000000, streams=128):
        self.folder = pathlib.Path(folder) / "nginx"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.plain, self.tls = Port(), Port()
        (self.folder / "nginx.conf").write_text(CONFIGURATION.format(
            folder=self.folder, certificates=certificates.folder, plain=self.plain.address, tls=self.tls.address,
            requests=requests, streams=streams, servers=" ".join(f"server {server};" for server in servers)))
        self.begin()

    def begin(self):
        program = shutil.which("nginx") or "/usr/sbin/nginx"
        self.process = Process([program, "-p", self.folder, "-c", self.folder / "nginx.conf", "-e", self.folder / "error.log"])
        self.plain.wait(self.process)
        self.tls.wait(self.process)

    def reload(self):
        """Reloads: a new worker begins; the old one sends GOAWAY, and ends with its last connection. Returns when the old worker
        has ended."""
        old = children(self.process)
        self.process.signal(signal.SIGHUP)
        wait_gone(old)

    def end(self, gently=True):
        self.process.signal(signal.SIGQUIT if gently else signal.SIGTERM)
        self.process.wait(20)
        self.process.end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.end()
