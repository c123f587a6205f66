#!/usr/bin/env python3
"""A program that makes calls, and serves its figures to Prometheus at /metrics meanwhile. Here it scrapes itself once,
and then ends.

    metrics_endpoint.py [TARGET]
"""

import http.server
import sys
import threading
import urllib.request

import penstock
from penstock import ready

metrics = ready.Metrics(buckets=[0.01, 0.1, 1])


class Endpoint(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/metrics":
            self.send_error(404)
            return
        text = metrics.prometheus().encode()  # any thread may ask, also while calls run
        self.send_response(200)
        self.send_header("content-type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments):
        pass


def work(target, over):
    """The program's own calls, until it is over."""
    try:
        # Above all other interceptors, the metrics count calls as their callers see them.
        with penstock.Channel(target, tls=False, interceptors=[(metrics, 1000)]) as channel:
            echo = channel.unary_unary("/penstock.Echo/Unary")
            while not over.wait(0.01):
                try:
                    echo(b"hi", timeout=5)
                except penstock.RpcError as error:
                    print(error.code().name, error.details())
    finally:
        over.set()  # also if there is no channel


def scrape(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)  # 0: the kernel picks a port
url = f"http://127.0.0.1:{server.server_address[1]}/metrics"
over = threading.Event()
threads = [
    threading.Thread(target=server.serve_forever),
    threading.Thread(target=work, args=(sys.argv[1] if len(sys.argv) > 1 else "localhost:50051", over)),
]
for thread in threads:
    thread.start()
try:
    text = ""
    while "grpc_client_handled_total{" not in text and not over.wait(0.05):
        text = scrape(url)
finally:
    over.set()
    server.shutdown()
    server.server_close()
    for thread in threads:
        thread.join()
print(url)
for line in text.splitlines():
    if line.startswith(("grpc_client_started_total", "grpc_client_in_flight", "grpc_client_handled_total")):
        print(line)
