"""Keepalive with grpcio's server, which limits how often it lets itself be pinged."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from typing import Iterator, Tuple

import pytest

from conftest import SERVER_PYTHON
from penstock import Channel, RpcError, StatusCode

# The server accepts the first PING, counts the second one as a strike, and finds each further one too many.
SERVER = """
import os, sys, time
from concurrent import futures
import grpc

server = grpc.server(
    futures.ThreadPoolExecutor(8), options=[("grpc.http2.max_ping_strikes", 1), ("grpc.so_reuseport", 0)]
)
hang = grpc.unary_unary_rpc_method_handler(lambda request, context: time.sleep(60))
echo = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.B", {"Hang": hang, "Echo": echo}),))
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
sys.stdin.read()
os._exit(0)
"""


@pytest.fixture
def strict() -> Iterator[Tuple[str, int]]:
    """The target and the process id of a running `SERVER`."""
    command = [SERVER_PYTHON, "-c", SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"127.0.0.1:{int(process.stdout.readline())}", process.pid
        os.kill(process.pid, signal.SIGCONT)
        process.stdin.close()
        process.wait(20)


def test_a_server_that_finds_too_many_pings(strict: Tuple[str, int]) -> None:
    with Channel(strict[0], tls=False, options={"keepalive_time_ms": 1000}) as channel:
        hang = channel.unary_unary("/a.B/Hang")
        with pytest.raises(RpcError) as caught:
            hang(b"", timeout=20)
        assert caught.value.code() == StatusCode.UNAVAILABLE
        # The server also ends the call, before it sends GOAWAY.
        assert re.search("(?i)too.many.pings", str(caught.value.details()))
        assert 2.5 < caught.value.stats["duration_us"] / 1e6 < 15
        # From now on the channel pings every 2 s, so it sends two PINGs in the 5 s of this call. The server allows
        # them.
        with pytest.raises(RpcError) as caught:
            hang(b"", timeout=5)
        assert caught.value.code() == StatusCode.DEADLINE_EXCEEDED


def test_a_server_that_has_stopped(strict: Tuple[str, int]) -> None:
    options = {"keepalive_time_ms": 1000, "keepalive_timeout_ms": 300}
    with Channel(strict[0], tls=False, options=options) as channel:
        assert channel.unary_unary("/a.B/Echo")(b"you") == b"you"
        os.kill(strict[1], signal.SIGSTOP)
        with pytest.raises(RpcError) as caught:
            channel.unary_unary("/a.B/Echo")(b"you", timeout=20)
        assert caught.value.code() == StatusCode.UNAVAILABLE
        details = str(caught.value.details())
        assert details.startswith(f"no answer to a keepalive ping from {strict[0]} within 300 ms")
        assert caught.value.stats["connection_silent_ms"] >= 1300
        os.kill(strict[1], signal.SIGCONT)
        assert channel.unary_unary("/a.B/Echo")(b"you", timeout=20) == b"you"
