#!/usr/bin/env python3
"""A service in gunicorn whose workers share a channel: it is made, with its interceptor, where the program is loaded before
the workers are forked (`--preload`). Each worker makes a connection of its own with its first call.

    gunicorn_service.py [TARGET]     lets gunicorn serve with two workers, asks both, and ends

Needs gunicorn. To serve for good: `TARGET=localhost:50051 gunicorn --preload --workers 4 gunicorn_service:app`.
"""

import os
import subprocess
import sys
import urllib.request

import penstock

WORKERS = 2


class Worker(penstock.Interceptor):
    def on_start(self, hop):
        hop.metadata["x-worker"] = str(os.getpid())


def app(environ, start_response):
    """The WSGI program."""
    name = environ["PATH_INFO"].lstrip("/")
    try:
        body = echo(name.encode(), timeout=5) + b" from worker %d\n" % os.getpid()
        start_response("200 OK", [("Content-Type", "text/plain")])
    except penstock.RpcError as error:
        body = error.details().encode()
        start_response("502 Bad Gateway", [("Content-Type", "text/plain")])
    return [body]


def main(target):
    command = [sys.executable, "-u", "-m", "gunicorn", "--preload", f"--workers={WORKERS}", "--bind=127.0.0.1:0"]
    command += ["--no-control-socket", f"--chdir={os.path.dirname(os.path.abspath(__file__))}", "gunicorn_service:app"]
    environment = dict(os.environ, TARGET=target)
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as server:
        workers = set()
        try:
            # gunicorn tells its address when it listens.
            address = next(line.split()[-2] for line in server.stderr if "Listening at" in line)
            while len(workers) < WORKERS:
                with urllib.request.urlopen(f"{address}/you", timeout=30) as answer:
                    text = answer.read().decode()
                if text.split()[-1] not in workers:
                    print(text, end="")
                workers.add(text.split()[-1])
        finally:
            server.terminate()
            server.communicate()
        return server.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:50051"))
else:
    # gunicorn loads this file as a module, once, before it forks.
    channel = penstock.Channel(os.environ["TARGET"], tls=False)
    channel.add_interceptor(Worker())
    echo = channel.unary_unary("/penstock.Echo/Unary")
    echo(b"the program is loaded", timeout=5)
