"""Interceptors that are told what becomes of connections: docs/channel.md, "Connection events"."""

from __future__ import annotations

import threading
from typing import Any, List

import pytest

import penstock
from helpers import eventually
from penstock import ConnectionEvent, ConnectionEventKind


class Observer(penstock.Interceptor):
    """Keeps the events that it is told."""

    def __init__(self) -> None:
        self.events: List[ConnectionEvent] = []

    def on_connection(self, event: ConnectionEvent) -> None:
        self.events.append(event)

    def kinds(self) -> List[str]:
        return [event.kind.name for event in self.events]


def test_a_connection_from_its_beginning(server: str) -> None:
    own, all_of_it = Observer(), Observer()
    with penstock.Runtime() as runtime:
        runtime.add_interceptor(all_of_it)
        with penstock.Channel(server, tls=False, runtime=runtime, interceptors=[own]) as channel:
            channel.unary_unary("/penstock.Probe/Unary")(b"{}")
            eventually(lambda: len(own.events) == 3)
            assert own.kinds() == ["RESOLVING", "CONNECTING", "READY"]
            ready = own.events[2]
            assert ready.target == server
            assert ready.address == server
            assert ready.message is None
            assert ready.tls_version is None
            assert ready.seconds == 0
        eventually(lambda: all_of_it.kinds()[-1] == "LOST")
    assert all_of_it.kinds() == ["RESOLVING", "CONNECTING", "READY", "LOST"]


def test_a_wait_after_a_failure() -> None:
    observer = Observer()
    with penstock.Channel("127.0.0.1:1", tls=False, interceptors=[observer]) as channel:
        with pytest.raises(penstock.RpcError):
            channel.unary_unary("/penstock.Probe/Unary")(b"{}")
        eventually(lambda: "BACKOFF" in observer.kinds())
        event = observer.events[-1]
        assert event.kind is ConnectionEventKind.BACKOFF
        assert event.message == "Connection refused"
        assert 0 < event.seconds <= 1


def test_an_exception_is_reported(server: str) -> None:
    reported: List[Any] = []
    seen = threading.Event()

    class Failing(penstock.Interceptor):
        def on_connection(self, event: ConnectionEvent) -> None:
            raise ValueError("no")

    def hook(name: str, callback: str, error: BaseException) -> None:
        reported.append((name, callback, error))
        seen.set()

    penstock.set_exception_hook(hook)
    try:
        with penstock.Channel(server, tls=False, interceptors=[Failing()]) as channel:
            assert channel.unary_unary("/penstock.Probe/Unary")(b"{}")
            assert seen.wait(20)
    finally:
        penstock.set_exception_hook(None)
    name, callback, error = reported[0]
    assert (name, callback) == ("Failing", "on_connection")
    assert isinstance(error, ValueError)
