"""The states of a channel, back-off, and calls that wait for a connection: docs/channel.md."""

from __future__ import annotations

import queue
import socket
import threading
import time
from concurrent import futures
from typing import Any, Iterator

import grpc
import pytest

import penstock
from helpers import eventually
from penstock import Connectivity, StatusCode
from penstock._handles.objects import registry

ECHO = "/test.Echo/Echo"


def serve(port: int) -> Any:
    """A grpcio server on this port that answers each unary call with its request."""

    class Handlers(grpc.GenericRpcHandler):
        def service(self, details: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(lambda request, context: request)

    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Handlers()], options=[("grpc.so_reuseport", 1)])
    assert server.add_insecure_port(f"127.0.0.1:{port}") == port
    server.start()
    return server


@pytest.fixture
def port() -> Iterator[int]:
    """A port that is reserved for the test, and on which nothing listens yet."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_states(port: int) -> None:
    server = serve(port)
    try:
        with penstock.Channel(f"127.0.0.1:{port}", tls=False) as channel:
            assert channel.connectivity is Connectivity.IDLE
            with pytest.raises(penstock.TimedOutError, match="still IDLE"):
                channel.wait_connectivity(Connectivity.IDLE, 0.01)
            with pytest.raises(penstock.TimedOutError, match="still IDLE"):
                channel.wait_connectivity(Connectivity.IDLE, 0.6)
            channel.connect()
            state = channel.wait_connectivity(Connectivity.IDLE, 20)
            if state is Connectivity.CONNECTING:
                state = channel.wait_connectivity(state, 20)
            assert state is Connectivity.READY
            assert channel.unary_unary(ECHO)(b"x") == b"x"
        assert channel.connectivity is Connectivity.SHUTDOWN
        with pytest.raises(penstock.ClosedError):
            channel.connect()
        with pytest.raises(penstock.ClosedError):
            channel.reset_backoff()
    finally:
        server.stop(None)


def test_states_are_watched(port: int) -> None:
    server = serve(port)
    told: queue.Queue[Connectivity] = queue.Queue()
    until_ready: queue.Queue[Connectivity] = queue.Queue()

    def ends_when_ready(state: Connectivity) -> bool:
        until_ready.put(state)
        return state is not Connectivity.READY

    try:
        with penstock.Channel(f"127.0.0.1:{port}", tls=False) as channel:
            before = len(registry)
            channel.watch_connectivity(told.put)
            channel.watch_connectivity(ends_when_ready)
            assert told.get(timeout=20) is Connectivity.IDLE
            assert channel.unary_unary(ECHO)(b"x") == b"x"
            state = told.get(timeout=20)
            if state is Connectivity.CONNECTING:
                state = told.get(timeout=20)
            assert state is Connectivity.READY
            with pytest.raises(TypeError, match="a function that gets a state"):
                channel.watch_connectivity(5)  # type: ignore[arg-type]
        while told.get(timeout=20) is not Connectivity.SHUTDOWN:
            pass
        with pytest.raises(penstock.ClosedError):
            channel.watch_connectivity(told.put)
        eventually(lambda: len(registry) <= before)
    finally:
        server.stop(None)
    assert list(until_ready.queue)[-1] is Connectivity.READY


def test_a_watch_that_raises(port: int, caplog: pytest.LogCaptureFixture) -> None:
    told: queue.Queue[Connectivity] = queue.Queue()

    def raises(state: Connectivity) -> None:
        told.put(state)
        raise ValueError("not this state")

    with penstock.Channel(f"127.0.0.1:{port}", tls=False) as channel:
        channel.watch_connectivity(raises)
        assert told.get(timeout=20) is Connectivity.IDLE
    assert told.get(timeout=20) is Connectivity.SHUTDOWN
    eventually(lambda: caplog.text.count("ValueError: not this state") == 2)


def test_calls_wait_for_the_server(port: int) -> None:
    options = {"initial_backoff_ms": 20, "max_backoff_ms": 50}
    with penstock.Channel(f"127.0.0.1:{port}", tls=False, options=options) as channel:
        with pytest.raises(penstock.RpcError) as failure:
            channel.unary_unary(ECHO)(b"x")
        assert failure.value.code() is StatusCode.UNAVAILABLE
        assert "Connection refused" in failure.value.details()
        assert "next attempt in" in failure.value.details()
        assert channel.connectivity is Connectivity.TRANSIENT_FAILURE
        with pytest.raises(penstock.RpcError) as failure:
            channel.unary_unary(ECHO)(b"x", wait_for_ready=True, timeout=0.1)
        assert failure.value.code() is StatusCode.DEADLINE_EXCEEDED
        answers = []
        waiting = [
            threading.Thread(
                target=lambda: answers.append(channel.unary_unary(ECHO)(b"x", wait_for_ready=True, timeout=30))
            )
            for _ in range(8)
        ]
        for thread in waiting:
            thread.start()
        server = serve(port)
        try:
            for thread in waiting:
                thread.join(30)
            assert answers == [b"x"] * 8
        finally:
            server.stop(None)


def test_a_server_that_comes_back(port: int) -> None:
    """No call fails for lack of a connection while the server is restarted three times."""
    options = {"initial_backoff_ms": 20, "max_backoff_ms": 50, "wait_for_ready": True}
    server = serve(port)
    done = threading.Event()
    codes = []

    def call() -> None:
        while not done.is_set():
            try:
                channel.unary_unary(ECHO)(b"x", timeout=30)
                codes.append(None)
            except penstock.RpcError as error:
                codes.append(error.code())

    with penstock.Channel(f"127.0.0.1:{port}", tls=False, options=options) as channel:
        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            until = len(codes) + 50
            while len(codes) < until:
                time.sleep(0.001)
            # The calls that the server has accepted have 10 s to end.
            server.stop(10).wait()
            server = serve(port)
        until = len(codes) + 50
        while len(codes) < until:
            time.sleep(0.001)
        done.set()
        for thread in threads:
            thread.join(30)
        server.stop(None)
    # Calls that reach grpcio's server while it stops end with CANCELLED. None fails for lack of a connection.
    assert set(codes) <= {None, StatusCode.CANCELLED}
    assert codes.count(None) > 150


def test_a_graceful_close(channel: penstock.Channel) -> None:
    go_on = threading.Event()

    def messages() -> Iterator[bytes]:
        yield b"a"
        assert go_on.wait(20)
        yield b"b"

    call = channel.stream_stream("/penstock.Echo/Bidi")(messages())
    assert next(call) == b"a"
    channel.close_gracefully(60)
    channel.close_gracefully()
    with pytest.raises(penstock.ClosedError):
        channel.unary_unary("/penstock.Echo/Unary")(b"x")
    go_on.set()
    assert list(call) == [b"b"]
    state = channel.connectivity
    while state != Connectivity.SHUTDOWN:
        state = channel.wait_connectivity(state, 20)


def test_a_graceful_close_has_a_limit(channel: penstock.Channel) -> None:
    ended = threading.Event()

    def messages() -> Iterator[bytes]:
        yield b"a"
        assert ended.wait(20)

    call = channel.stream_stream("/penstock.Echo/Bidi")(messages())
    assert next(call) == b"a"
    channel.close_gracefully(0.05)
    with pytest.raises(penstock.RpcError) as caught:
        next(call)
    ended.set()
    assert caught.value.code() == StatusCode.CANCELLED
