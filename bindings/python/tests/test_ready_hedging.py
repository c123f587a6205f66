"""ready.Hedging against grpcio's server, which fails or waits as a plan says."""

from __future__ import annotations

import threading
from concurrent import futures
from typing import Any, Iterator, List, Optional, Tuple

import grpc
import pytest

from helpers import eventually
from penstock import Channel, RpcError, StatusCode, ready


class Slow(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers the first ``slow`` requests only when the test ends, and fails the next ``failing`` ones."""

    def __init__(self, slow: int = 0, failing: int = 0, pushback: Tuple[str, ...] = ()) -> None:
        self.slow, self.failing, self.pushback = slow, failing, pushback
        self.previous: List[Optional[str]] = []
        self.cancelled = 0
        self.lock, self.over = threading.Lock(), threading.Event()

    def service(self, details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(self.answer)

    def answer(self, request: bytes, context: Any) -> bytes:
        with self.lock:
            number = len(self.previous)
            self.previous.append(dict(context.invocation_metadata()).get("grpc-previous-rpc-attempts"))
        if number < self.slow:
            context.add_callback(self.ended)
            self.over.wait()
        elif number < self.slow + self.failing:
            context.set_trailing_metadata([("grpc-retry-pushback-ms", value) for value in self.pushback])
            context.abort(grpc.StatusCode.UNAVAILABLE, f"failure {number}")
        return request

    def ended(self) -> None:
        with self.lock:
            self.cancelled += 1


@pytest.fixture
def serve() -> Iterator[Any]:
    running: List[Tuple[Any, Slow]] = []

    def start(handler: Slow) -> str:
        server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[handler])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        running.append((server, handler))
        return f"127.0.0.1:{port}"

    yield start
    for server, handler in running:
        handler.over.set()
        server.stop(0).wait()


def test_the_next_attempt_answers_for_a_slow_one(serve: Any) -> None:
    handler = Slow(slow=1)
    hedging = ready.Hedging(delay=0.01, non_fatal_codes=[StatusCode.UNAVAILABLE])
    with Channel(serve(handler), tls=False, interceptors=[hedging]) as channel:
        answer, call = channel.unary_unary("/a.B/C").with_call(b"x", timeout=20)
        assert (answer, ready.Hedging.of(call)) == (b"x", {"sent": 2, "won": 2, "cancelled": 1})
        assert handler.previous == [None, "1"]
        # The loser's server learns that nobody wants its answer.
        eventually(lambda: handler.cancelled == 1)
    figures = hedging.stats()
    assert (figures["calls"], figures["sent"], figures["hedges_won"], figures["cancelled"]) == (1, 2, 1, 1)


def test_other_attempts_go_to_another_channel(serve: Any) -> None:
    here, there = Slow(slow=1), Slow()
    with Channel(serve(there), tls=False) as other:
        hedging = ready.Hedging(delay=0.01, channel=other)
        with Channel(serve(here), tls=False, interceptors=[hedging]) as channel:
            assert channel.unary_unary("/a.B/C")(b"x", timeout=20) == b"x"
    assert (here.previous, there.previous) == ([None], ["1"])


@pytest.mark.parametrize(("pushback", "sent"), [((), 3), (("1",), 3), (("-1",), 1), (("soon",), 1)])
def test_failures_and_the_servers_word_about_others(serve: Any, pushback: Tuple[str, ...], sent: int) -> None:
    handler = Slow(failing=9, pushback=pushback)
    hedging = ready.Hedging(max_attempts=3, delay=3600)
    address = serve(handler)
    with Channel(address, tls=False, interceptors=[hedging]) as channel, pytest.raises(RpcError) as failed:
        channel.unary_unary("/a.B/C")(b"x", timeout=20)
    assert (failed.value.code(), failed.value.details()) == (StatusCode.UNAVAILABLE, f"failure {sent - 1}")
    assert ready.Hedging.of(failed.value) == {"sent": sent, "won": 0, "cancelled": 0}
    assert handler.previous == [None, "1", "2"][:sent]


def test_the_throttle_leaves_first_attempts_alone(serve: Any) -> None:
    handler = Slow(failing=99)
    hedging = ready.Hedging(delay=3600, max_tokens=2, token_ratio=0.5)
    with Channel(serve(handler), tls=False, interceptors=[hedging]) as channel:
        for _ in range(3):
            with pytest.raises(RpcError):
                channel.unary_unary("/a.B/C")(b"x", timeout=20)
    assert handler.previous == [None, None, None]
    figures = hedging.stats()
    assert (figures["throttled"], figures["throttle"]["retries_allowed"]) == (3, False)


def test_a_wrong_option_is_named() -> None:
    with pytest.raises(ValueError, match=r"\$\.max_attempts"):
        ready.Hedging(max_attempts=9)
