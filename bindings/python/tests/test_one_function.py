"""Which C functions a unary call from Python consists of."""

from __future__ import annotations

from typing import Any, List

import pytest

import penstock
from penstock import Channel, Interceptor, _raw
from penstock._calls.codec import Boxed
from penstock._handles.context import CallContext
from penstock._handles.objects import Raised
from penstock._raw import library


def test_a_unary_call_takes_one_c_function_and_those_of_the_reply(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two C functions other threads may take the GIL, so each one more makes many threads slower."""
    # Once any call of the process had an object or an exception of a callback, replies are looked through for them.
    monkeypatch.setattr(Boxed, "ever", False)
    monkeypatch.setattr(Raised, "ever", False)
    channel = Channel(server, tls=False, runtime=penstock.Runtime())
    names: List[str] = []

    def noted(name: str, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            names.append(name)
            return function(*arguments)

        return call

    def called(*arguments: Any) -> List[str]:
        assert channel.unary_unary("/penstock.Echo/Unary")(*arguments) == b"x"
        taken, names[:] = names[:], []
        return taken

    called(b"x")  # From here on the parsed options are kept.
    for name, function in library.functions().items():
        monkeypatch.setattr(_raw, name, noted(name, function))
    reply = ["penstock_reply_code", "penstock_reply_bytes", "penstock_reply_release"]
    assert called(b"x") == ["penstock_channel_unary", *reply]
    monkeypatch.setattr(CallContext, "outlives_calls", False)
    channel.add_interceptor(Interceptor())
    called(b"x")  # From here on the parsed options have a place for the context in which the callbacks run.
    assert called(b"x") == ["penstock_channel_unary", *reply]
    # If callbacks may run after the call's end, each call has a place of its own.
    monkeypatch.setattr(CallContext, "outlives_calls", True)
    called(b"x")
    placed = ["penstock_call_options_set_context", "penstock_channel_unary", "penstock_call_options_set_context"]
    assert called(b"x") == [*placed, *reply]
    channel.close()
