"""The same programs on grpcio's channel and on ours, against grpcio's server: their users see the same."""

from __future__ import annotations

import logging
import threading
from typing import Any, Dict, Iterator, List

import grpc
import pytest

import penstock.grpc
from grpc_scenarios import SCENARIOS
from helpers import eventually, with_new_grpcio
from penstock import Hop, Interceptor

pytestmark = with_new_grpcio
Count = Dict[str, int]


class Counting(Interceptor):
    """Counts every call."""

    def __init__(self) -> None:
        self.calls = 0

    def on_start(self, hop: Hop) -> None:
        self.calls += 1


@pytest.fixture
def no_grpcio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making a channel of grpcio's raises from now on."""

    def refuse(*arguments: Any, **keywords: Any) -> None:
        raise AssertionError("a channel of grpcio's is made")

    monkeypatch.setattr("grpc._channel.Channel", refuse)
    monkeypatch.setattr("grpc._cython.cygrpc.Channel", refuse)


@pytest.fixture
def theirs(server: str, caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    for logger in ("grpc", "penstock"):
        caplog.set_level(logging.CRITICAL + 1, logger)
    with grpc.insecure_channel(server) as channel:
        yield channel


@pytest.mark.parametrize("name", SCENARIOS)
def test_users_see_the_same(name: str, theirs: Any, server: str, request: pytest.FixtureRequest) -> None:
    expected = SCENARIOS[name](grpc, theirs)
    request.getfixturevalue("no_grpcio")
    with penstock.grpc.insecure_channel(server) as channel:
        counting = Counting()
        channel.add_interceptor(counting)
        assert SCENARIOS[name](penstock.grpc, channel) == expected
        # All of them went through our interceptor, but for those that a wrong argument has ended before.
        assert counting.calls > 0 or name in (
            *("refused_metadata_in_each_kind", "credentials_in_cleartext", "an_interceptor_that_raises"),
            *("a_channel_that_gets_ready",),
        )


def test_classes_are_those_of_grpcio() -> None:
    for name in penstock.grpc._names.__all__:
        assert getattr(penstock.grpc, name) is getattr(grpc, name)
    assert penstock.grpc.server is grpc.server
    missing = [name for name in grpc.__all__ if not hasattr(penstock.grpc, name)]
    assert missing == []
    with pytest.raises(AttributeError, match="nonsense"):
        penstock.grpc.nonsense  # noqa: B018


def states(module: Any, channel: Any) -> List[Any]:
    """The states that a subscription tells of, until the channel is ready."""
    told: List[Any] = []
    ready = threading.Event()

    def changed(state: Any) -> None:
        told.append(state)
        if state is module.ChannelConnectivity.READY:
            ready.set()

    channel.subscribe(changed, try_to_connect=True)
    assert ready.wait(20)
    channel.unsubscribe(changed)
    channel.unsubscribe(changed)
    later: List[Any] = []
    channel.subscribe(later.append)
    eventually(lambda: bool(later))
    return [told[-1], later]


def test_subscriptions(theirs: Any, server: str) -> None:
    with penstock.grpc.insecure_channel(server) as channel:
        assert states(penstock.grpc, channel) == states(grpc, theirs)
    channel.subscribe(lambda state: None)


def closed(module: Any, server: str) -> List[Any]:
    channel = module.insecure_channel(server)
    unary = channel.unary_unary("/penstock.Probe/Hang")
    stream = channel.unary_stream("/penstock.Echo/ServerStream")
    running = unary.future(b"")
    started = channel.unary_stream("/penstock.Probe/HangStream")(b"")
    assert next(started) == b"first"
    channel.close()
    channel.close()
    seen = [type(running.exception(timeout=20)) is type(running), running.code(), running.details()]
    seen += [running.cancelled(), started.code()]
    for call in (unary, unary.future, stream, channel.unary_unary("/x/y").with_call):
        with pytest.raises(ValueError, match="closed") as caught:
            call(b"")
        seen.append(str(caught.value))
    return seen


def test_closed_channels(server: str) -> None:
    assert closed(penstock.grpc, server) == closed(grpc, server)


def test_a_channel_that_does_not_get_ready() -> None:
    for module in (grpc, penstock.grpc):
        with module.insecure_channel("127.0.0.1:1") as channel:
            future = module.channel_ready_future(channel)
            with pytest.raises(grpc.FutureTimeoutError):
                future.result(timeout=0.01)
            assert (future.cancel(), future.cancelled(), future.done()) == (True, True, True)
            with pytest.raises(grpc.FutureCancelledError):
                future.result()
