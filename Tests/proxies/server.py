"""A grpcio server that says on stdout which calls have reached it: a line `call ID` as soon as a handler begins.

    server.py [--listen ADDRESS] [--cert F --key F]

Prints {"address": ...} when it listens. Of the lines on stdin, `stop` ends it gracefully (GOAWAY, calls in flight go on), and any
other is printed. The end of stdin ends it at once.
"""

import argparse
import json
import os
import sys
import time
from concurrent import futures

import grpc


def seen(context):
    """Written at once and whole, so that it is known even of a server that is killed next."""
    metadata = dict(context.invocation_metadata())
    os.write(1, f"call {metadata['x-id']}\n".encode())
    time.sleep(int(metadata.get("x-delay-ms", 0)) / 1000)


def unary(request, context):
    seen(context)
    return request


def server_stream(request, context):
    seen(context)
    for _ in range(3):
        yield request
        # So that each message has a frame of its own.
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
    arguments = parser.parse_args()
    server = grpc.server(futures.ThreadPoolExecutor(16))
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
        os.write(1, line.encode())
    os._exit(0)


if __name__ == "__main__":
    main()
