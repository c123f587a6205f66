"""A grpcio server that prints which calls have reached it: a line `call ID` as soon as a handler begins.

    server.py [--listen ADDRESS] [--cert F --key F] [--health STATUS] [--streams N] [--fails]

Prints {"address": ...} when it listens. Of the lines on stdin, `stop` ends it gracefully (GOAWAY, calls in flight go on),
`health STATUS` sets the health of each service, `gate` lets the calls go on that wait for it (metadata x-gate), `fail` and
`succeed` decide how later calls end, and `peers` prints {"peers": N}, the number of connections that have had calls; each line
is printed when it has been carried out. The end of stdin ends the server at once.

`--health`: the server has the health service grpc.health.v1, in which each service begins with this status. `--streams`: its
MAX_CONCURRENT_STREAMS.
"""

import argparse
import json
import os
import sys
import threading
import time
from concurrent import futures

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

SERVICES = ("", "proxies.Calls")
gate = threading.Event()
fails = threading.Event()
peers = set()


def seen(context):
    """Prints that a call has come, in one write, so that the line is complete even if the server is killed next."""
    metadata = dict(context.invocation_metadata())
    os.write(1, f"call {metadata['x-id']}\n".encode())
    peers.add(context.peer())
    if "x-gate" in metadata:
        gate.wait(60)
    if fails.is_set():
        context.abort(grpc.StatusCode.UNAVAILABLE, "it is told to fail")
    time.sleep(int(metadata.get("x-delay-ms", 0)) / 1000)


def unary(request, context):
    seen(context)
    return request


def server_stream(request, context):
    seen(context)
    for _ in range(3):
        yield request
        # The pause makes each message leave in a frame of its own.
        time.sleep(int(dict(context.invocation_metadata()).get("x-pause-ms", 0)) / 1000)


def client_stream(requests, context):
    seen(context)
    return b"".join(requests)


def bidi(requests, context):
    seen(context)
    yield from requests


HANDLERS = {
    "Unary": grpc.unary_unary_rpc_method_handler(unary),
    "Server": grpc.unary_stream_rpc_method_handler(server_stream),
    "Client": grpc.stream_unary_rpc_method_handler(client_stream),
    "Bidi": grpc.stream_stream_rpc_method_handler(bidi),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--cert")
    parser.add_argument("--key")
    parser.add_argument("--health")
    parser.add_argument("--streams", type=int)
    arguments = parser.parse_args()
    options = [("grpc.max_concurrent_streams", arguments.streams)] if arguments.streams else []
    server = grpc.server(futures.ThreadPoolExecutor(64 if arguments.streams else 16), options=options)
    checker = health.HealthServicer(True, futures.ThreadPoolExecutor(4))

    def set_health(status):
        for service in SERVICES:
            checker.set(service, health_pb2.HealthCheckResponse.ServingStatus.Value(status))

    if arguments.health:
        set_health(arguments.health)
        health_pb2_grpc.add_HealthServicer_to_server(checker, server)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("proxies.Calls", HANDLERS),))
    if arguments.cert:
        with open(arguments.cert, "rb") as cert, open(arguments.key, "rb") as key:
            pair = (key.read(), cert.read())
        port = server.add_secure_port(arguments.listen, grpc.ssl_server_credentials([pair]))
    else:
        port = server.add_insecure_port(arguments.listen)
    server.start()
    os.write(1, (json.dumps({"address": f"127.0.0.1:{port}"}) + "\n").encode())
    for line in sys.stdin:
        if line == "stop\n":
            server.stop(10).wait()
            os._exit(0)
        command, _, rest = line.strip().partition(" ")
        if command == "health":
            set_health(rest)
        elif command == "gate":
            gate.set()
        elif command == "fail":
            fails.set()
        elif command == "succeed":
            fails.clear()
        os.write(1, (json.dumps({"peers": len(peers)}) + "\n").encode() if command == "peers" else line.encode())
    os._exit(0)


if __name__ == "__main__":
    main()
