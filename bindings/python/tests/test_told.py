"""Exceptions of the program's functions that C calls: each is told once, to the hook or the log, by its two names."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

import penstock
from aio_helpers import run_on
from helpers import EVENTS, Only, eventually, unary
from penstock import Channel, Connecting, Connectivity, RpcError, StatusCode, aio
from penstock._handles import reports

SOON = {"initial_backoff_ms": 10, "max_backoff_ms": 10}
ONCE = {"initial_backoff_ms": 600000, "max_backoff_ms": 600000}
Told = List[Tuple[str, str, BaseException]]


@pytest.fixture
def told() -> Iterator[Told]:
    """The exceptions that the hook has got."""
    found: Told = []
    penstock.set_exception_hook(lambda name, callback, error: found.append((name, callback, error)))
    yield found
    penstock.set_exception_hook(None)


def raises(*_: Any) -> Any:
    raise LookupError("not here")


# ---- The hook and the log ----


def test_without_a_hook_it_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("x")
    reports.tell("name", "callback", error)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("penstock", logging.ERROR)
    assert record.getMessage() == "interceptor 'name' raised in callback"
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_a_hook_has_it_in_place_of_the_log(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("x")
    reports.report("name", "callback", error)
    assert told == [("name", "callback", error)]
    assert caplog.records == []


def test_a_hook_that_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    penstock.set_exception_hook(raises)
    try:
        reports.report("name", "callback", ValueError("x"))
    finally:
        penstock.set_exception_hook(None)
    (record,) = caplog.records
    assert record.getMessage() == "the exception hook raised"
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], LookupError)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_a_wish_to_end_is_told_and_raised_again(told: Told, error: BaseException) -> None:
    from penstock._handles.ctrl_c import raise_escaping

    reports.tell("name", "callback", error)
    raise_escaping()
    reports.report("name", "callback", error)
    assert told == [("name", "callback", error)] * 2
    with pytest.raises(type(error)):
        raise_escaping()
    raise_escaping()


# ---- Connectors ----


def failure(channel: Channel) -> str:
    with pytest.raises(RpcError) as caught:
        unary(channel)
    assert caught.value.code() is StatusCode.UNAVAILABLE
    return caught.value.details()


def fails(connecting: Connecting) -> socket.socket:
    raise LookupError("not here")


class Fails:
    def __call__(self, connecting: Connecting) -> socket.socket:
        raise LookupError("not here")


class FailsAtOnce(penstock.Connector):
    def connect(self, connecting: Connecting) -> None:
        raise LookupError("not here")


@pytest.mark.parametrize(
    ("connector", "name"), [(fails, "fails"), (Fails(), "Fails"), (FailsAtOnce(), "FailsAtOnce")]
)
def test_a_connector_that_raises(server: str, told: Told, connector: Any, name: str) -> None:
    with Channel(server, tls=False, connector=connector, options=ONCE) as channel:
        assert "the connector has failed: LookupError: not here" in failure(channel)
        eventually(lambda: bool(told))
    assert [(who, what, str(error)) for who, what, error in told] == [(name, "connect", "not here")]


@pytest.mark.parametrize(
    ("kind", "words", "said"),
    [
        (OSError, ["no way"], "OSError: no way"),
        (ConnectionRefusedError, [], "ConnectionRefusedError"),
        (TimeoutError, ["late"], "TimeoutError: late"),
    ],
)
def test_a_connector_may_find_that_there_is_no_connection(
    server: str, told: Told, kind: Any, words: List[str], said: str
) -> None:
    def refused(connecting: Connecting) -> socket.socket:
        raise kind(*words)

    with Channel(server, tls=False, connector=refused, options=SOON) as channel:
        assert f"the connector has failed: {said}" in failure(channel)
    assert told == []


def test_an_async_connector_that_raises(server: str, told: Told) -> None:
    async def work(error: Exception) -> str:
        async def fails(connecting: Connecting) -> None:
            raise error

        async with aio.Channel(server, tls=False, connector=fails, options=SOON) as channel:
            with pytest.raises(RpcError) as caught:
                await channel.unary_unary("/penstock.Echo/Unary")(b"x")
        return caught.value.details()

    assert "the connector has failed: LookupError: not here" in run_on(
        asyncio.new_event_loop, work(LookupError("not here"))
    )
    assert {(who, what, str(error)) for who, what, error in told} == {("fails", "connect", "not here")}
    told.clear()
    assert "the connector has failed: OSError: no way" in run_on(asyncio.new_event_loop, work(OSError("no way")))
    assert told == []


def test_the_words_of_an_error_that_c_can_not_have(server: str, told: Told) -> None:
    def odd(connecting: Connecting) -> socket.socket:
        raise OSError("a\0b\udcff")

    with Channel(server, tls=False, connector=odd, options=SOON) as channel:
        assert "the connector has failed: OSError: ab?" in failure(channel)


# ---- The others ----


def test_a_resolver_that_raises(server: str, told: Told) -> None:
    class Fails(penstock.Resolver):
        def resolve(self) -> None:
            self.push({"addresses": [{"address": f"ipv4:{server}"}]})
            raise LookupError("in resolve")

        def stop(self) -> None:
            raise LookupError("in stop")

    with Channel("name", tls=False, resolver=Fails()) as channel:
        assert unary(channel) == b"x"
    eventually(lambda: len(told) == 2)
    assert [(who, what, str(error)) for who, what, error in told] == [
        ("Fails", "resolve", "in resolve"),
        ("Fails", "stop", "in stop"),
    ]


def test_a_watch_that_raises_goes_on(server: str, told: Told) -> None:
    seen: List[Connectivity] = []

    def changed(state: Connectivity) -> None:
        seen.append(state)
        raise LookupError(state.name)

    with Channel(server, tls=False) as channel:
        channel.watch_connectivity(changed)
        assert unary(channel) == b"x"
        eventually(lambda: Connectivity.READY in seen)
    eventually(lambda: len(told) == len(seen) and seen[-1] is Connectivity.SHUTDOWN)
    assert len(seen) > 2
    assert [(who, what, str(error)) for who, what, error in told] == [
        ("watch_connectivity", "changed", state.name) for state in seen
    ]


@pytest.mark.parametrize(("returned", "goes_on"), [(None, True), (True, True), (0, True), (False, False)])
def test_a_watch_ends_by_false(server: str, returned: Any, goes_on: bool) -> None:
    seen: List[Connectivity] = []
    ends = threading.Event()

    def changed(state: Connectivity) -> Any:
        seen.append(state)
        return returned

    def last(state: Connectivity) -> None:
        if state is Connectivity.SHUTDOWN:
            ends.set()

    with Channel(server, tls=False) as channel:
        channel.watch_connectivity(changed)
        channel.watch_connectivity(last)
        eventually(lambda: bool(seen))
        assert unary(channel) == b"x"
    assert ends.wait(60)
    if goes_on:
        eventually(lambda: seen[-1] is Connectivity.SHUTDOWN)
    else:
        assert seen == [Connectivity.IDLE]


@pytest.mark.parametrize("wrong", [None, "state", 1])
def test_a_watch_is_a_function(channel: Channel, wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"^a function that gets a state, not {wrong!r}$"):
        channel.watch_connectivity(wrong)


def test_a_picker_that_raises(server: str, told: Told) -> None:
    with Channel(server, tls=False, picker=raises) as channel:
        with pytest.raises(RpcError) as caught:
            unary(channel)
        assert caught.value.code() is StatusCode.INTERNAL
        assert "the picker raised LookupError" in caught.value.details()
    assert {(who, what, str(error)) for who, what, error in told} == {("picker", "picker", "not here")}


def test_a_verifier_that_raises(
    servers: Dict[str, str], certificates: Path, told: Told, capfd: pytest.CaptureFixture[str]
) -> None:
    tls = {"roots_file": str(certificates / "ca.pem")}
    with Channel(servers["tls"], tls=tls, verifier=raises, options=ONCE) as channel:
        assert "the verifier raised LookupError: not here" in failure(channel)
    assert [(who, what, str(error)) for who, what, error in told] == [("verifier", "verifier", "not here")]


@pytest.mark.parametrize("callback", EVENTS[:6])
def test_a_callback_of_an_interceptor_that_raises(channel: Channel, told: Told, callback: str) -> None:
    channel.add_interceptor(Only(**{callback: raises}), name="mine")
    with contextlib.suppress(RpcError):
        unary(channel)
    assert [(who, what, str(error)) for who, what, error in told] == [("mine", callback, "not here")]


def test_a_connection_event_that_raises(server: str, told: Told) -> None:
    class Fails(penstock.Interceptor):
        def on_connection(self, event: penstock.ConnectionEvent) -> None:
            raise LookupError(event.kind.name)

    with Channel(server, tls=False, interceptors=[Fails()]) as channel:
        assert unary(channel) == b"x"
    assert ("Fails", "on_connection", "READY") in [(who, what, str(error)) for who, what, error in told]
    assert {(who, what) for who, what, _ in told} == {("Fails", "on_connection")}
