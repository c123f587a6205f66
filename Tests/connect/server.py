"""Runs the applications of apps.py on a server from PyPI, on ports of 127.0.0.1 that the kernel picks.

    server.py uvicorn [OPTIONS]      HTTP/1.1
    server.py hypercorn [OPTIONS]    HTTP/1.1 and HTTP/2, with prior knowledge or by ALPN
    server.py wsgi [OPTIONS]         the WSGI application on hypercorn
    server.py wsgiref                the WSGI application on the server of Python's library: HTTP/1.0

    --cert F --key F     listens on a second port, with TLS
    --keep-alive N       the seconds that an idle connection stays open
    --listen ADDRESS     listens on this address, not on a port that the kernel picks

Prints {"address": ..., "tls": ...} when it listens, and ends at the end of stdin.
"""

import argparse
import asyncio
import json
import logging
import os
import socket
import socketserver
import sys
import threading
import wsgiref.simple_server

import apps
import hypercorn.asyncio
import hypercorn.config
import uvicorn


def listener(address="127.0.0.1:0"):
    host, port = address.rsplit(":", 1)
    # asyncio sets TCP_NODELAY only on a socket whose protocol is given.
    found = socket.socket(proto=socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    found.bind((host, int(port)))
    found.listen(2048)
    return found


def say(**what):
    print(json.dumps(what), flush=True)


def address(found):
    return "127.0.0.1:" + str(found.getsockname()[1])


async def stdin_ends():
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        pass


async def on_uvicorn(arguments, plain, secure):
    common = {"app": apps.asgi, "log_level": "critical", "access_log": False, "lifespan": "on", "interface": "asgi3",
              "timeout_keep_alive": arguments.keep_alive, "loop": "asyncio"}
    servers = [(uvicorn.Server(uvicorn.Config(**common)), plain)]
    if secure:
        config = uvicorn.Config(**common, ssl_certfile=arguments.cert, ssl_keyfile=arguments.key)
        servers.append((uvicorn.Server(config), secure))
    # The sockets listen already. So connections wait until the servers have started.
    say(address=address(plain), tls=address(secure) if secure else None)
    running = [stdin_ends(), *(server.serve(sockets=[found]) for server, found in servers)]
    await asyncio.wait([asyncio.ensure_future(one) for one in running], return_when=asyncio.FIRST_COMPLETED)
    os._exit(0)


async def on_hypercorn(arguments, plain, secure, wsgi):
    config = hypercorn.config.Config()
    config.errorlog = "-" if os.environ.get("PROBE_LOG") else None
    config.keep_alive_timeout = arguments.keep_alive
    # After this many requests hypercorn closes a connection, even if new streams begin on it.
    config.keep_alive_max_requests = 1 << 30
    config.wsgi_max_body_size = 1 << 30
    config.bind = [f"fd://{(secure or plain).fileno()}"]
    if secure:
        config.insecure_bind = [f"fd://{plain.fileno()}"]
        config.certfile, config.keyfile = arguments.cert, arguments.key
    say(address=address(plain), tls=address(secure) if secure else None)
    await hypercorn.asyncio.serve(apps.wsgi if wsgi else apps.asgi, config, mode="wsgi" if wsgi else "asgi",
                                  shutdown_trigger=stdin_ends)


class Threads(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    daemon_threads = True


class Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *_):
        pass


def on_wsgiref():
    with wsgiref.simple_server.make_server("127.0.0.1", 0, apps.wsgi, Threads, Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        say(address=f"127.0.0.1:{server.server_port}", tls=None)
        for _ in sys.stdin:
            pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("server", choices=("uvicorn", "hypercorn", "wsgi", "wsgiref"))
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--cert")
    parser.add_argument("--key")
    parser.add_argument("--keep-alive", type=int, default=60)
    arguments = parser.parse_args()
    # The servers and connectrpc log the faults of clients, such as cut connections and failed handshakes.
    if not os.environ.get("PROBE_LOG"):
        logging.disable()
    if arguments.server == "wsgiref":
        return on_wsgiref()
    plain, secure = listener(arguments.listen), listener() if arguments.cert else None
    if arguments.server == "uvicorn":
        return asyncio.run(on_uvicorn(arguments, plain, secure))
    return asyncio.run(on_hypercorn(arguments, plain, secure, arguments.server == "wsgi"))


if __name__ == "__main__":
    main()
