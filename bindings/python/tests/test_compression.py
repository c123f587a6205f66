"""Compressed answers of a grpcio server, and compressed messages to it."""

from __future__ import annotations

import subprocess
from typing import Iterator

import pytest

import penstock
from conftest import SERVER_PYTHON

# A server in a process of its own, which answers with the compression that is its argument.
SERVER = """
import os, sys
from concurrent import futures
import grpc

server = grpc.server(
    futures.ThreadPoolExecutor(4),
    compression=getattr(grpc.Compression, sys.argv[1]),
    options=[("grpc.so_reuseport", 0)],
)
def each(request, context):
    for _ in range(3):
        yield request
handlers = {
    "Echo": grpc.unary_unary_rpc_method_handler(lambda request, context: request),
    "Each": grpc.unary_stream_rpc_method_handler(each),
}
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.B", handlers),))
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
sys.stdin.read()
os._exit(0)
"""


@pytest.fixture(params=["Gzip", "Deflate"])
def target(request: pytest.FixtureRequest) -> Iterator[str]:
    command = [SERVER_PYTHON, "-c", SERVER, request.param]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"127.0.0.1:{int(process.stdout.readline())}"
        process.stdin.close()
        process.wait(20)


@pytest.mark.parametrize("compression", ["identity", "gzip", "deflate"])
def test_grpcio_compresses_answers(target: str, compression: str) -> None:
    data = b"compress me " * 10_000
    with penstock.Channel(target, tls=False) as channel:
        answer, call = channel.unary_unary("/a.B/Echo").with_call(data, compression=compression, timeout=20)
        assert answer == data
        sent, received = call.stats["sent"], call.stats["received"]
        assert received["bytes"] == len(data)
        assert received["compressed_bytes"] < 2000
        assert (sent["compressed_bytes"] < 2000) == (compression != "identity")
        assert list(channel.unary_stream("/a.B/Each")(data, compression=compression, timeout=20)) == [data] * 3
