"""`CancelScope`: it cancels calls of every kind, from any thread, before they begin and while they run."""

from __future__ import annotations

import gc
import threading
from typing import Any, List

import pytest

import penstock
from helpers import Only
from penstock import CancelScope, Channel, Hop, StatusCode, Verdict

ECHO = "/penstock.Echo/"


def cancelled(error: BaseException, reason: str) -> bool:
    return isinstance(error, penstock.RpcError) and error.code() is StatusCode.CANCELLED and error.details() == reason


def test_a_scope_cancels_calls_of_every_kind(channel: Channel) -> None:
    scope, begun = CancelScope(), threading.Semaphore(0)
    errors: List[penstock.RpcError] = []

    def hold(hop: Hop) -> Verdict:
        """Lets no call go on: only the scope ends it."""
        hop.ticket()
        begun.release()
        return Verdict.PAUSE

    channel.add_interceptor(Only(on_start=hold))

    def run(call: Any) -> None:
        try:
            call()
        except penstock.RpcError as error:
            errors.append(error)

    calls = [
        lambda: channel.unary_unary(ECHO + "Unary")(b"x", cancel_scope=scope),
        lambda: list(channel.unary_stream(ECHO + "ServerStream")(b"x", cancel_scope=scope)),
        lambda: channel.stream_unary(ECHO + "ClientStream")([b"x"], cancel_scope=scope),
        lambda: list(channel.stream_stream(ECHO + "Bidi")([b"x"], cancel_scope=scope)),
    ]
    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert begun.acquire(timeout=60)
    assert scope.cancel("enough")
    assert not scope.cancel("again")
    for thread in threads:
        thread.join()
    assert len(errors) == len(calls)
    assert all(cancelled(error, "enough") for error in errors), errors


def test_a_call_after_the_cancel_does_not_begin(channel: Channel) -> None:
    scope = CancelScope()
    seen: List[str] = []
    scope.cancel("closed")
    channel.add_interceptor(Only(on_start=lambda hop: seen.append(hop.method)))
    for call in (
        lambda: channel.unary_unary(ECHO + "Unary")(b"x", cancel_scope=scope),
        lambda: list(channel.stream_stream(ECHO + "Bidi")([b"x"], cancel_scope=scope)),
    ):
        with pytest.raises(penstock.RpcError) as raised:
            call()
        assert cancelled(raised.value, "closed")
    assert seen == []
    assert channel.unary_unary(ECHO + "Unary")(b"x") == b"x"


def test_only_a_scope_is_a_scope(channel: Channel) -> None:
    wrong: Any = "scope"
    with pytest.raises(TypeError, match="CancelScope"):
        channel.unary_unary(ECHO + "Unary")(b"x", cancel_scope=wrong)


class Late:
    """An object in a cycle, whose `__del__` runs after the garbage collector has released the scope."""

    def __init__(self, said: List[Any]) -> None:
        self.scope = CancelScope()
        self.said = said
        self.itself = self

    def __del__(self) -> None:
        try:
            self.said.append(self.scope.cancel("late"))
        except penstock.LibraryError as error:
            self.said.append(error)


def test_a_scope_that_was_collected_is_not_used() -> None:
    said: List[Any] = []
    Late(said)
    gc.collect()
    assert [type(each) for each in said] == [penstock.InvalidArgumentError]
