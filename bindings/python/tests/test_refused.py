"""Objects that can't be registered, and those that are registered with a warning."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Dict

import pytest

import penstock
from helpers import Only, unary
from penstock import Channel, CompletionInterceptor, Hop, Interceptor, InterceptorWarning, SyncInterceptor

# Each function registers its second argument in a different place.
PLACES: Dict[str, Callable[[Channel, Any], object]] = {
    "channel": lambda channel, given: channel.add_interceptor(given),
    "runtime": lambda channel, given: penstock.default_runtime().add_interceptor(given).remove(),
    "every channel": lambda channel, given: penstock.add_interceptor(given).remove(),
    "new channel": lambda channel, given: Channel(channel.target, tls=False, interceptors=[given]).close(),
    "call": lambda channel, given: unary(channel, interceptors=[given]),
    "replacement": lambda channel, given: channel.add_interceptor(Interceptor()).replace(given),
}


class Auth(Interceptor):
    def on_start(self, hop: Hop) -> None: ...


@pytest.mark.parametrize("place", PLACES)
def test_a_class_is_no_interceptor(channel: Channel, place: str) -> None:
    with pytest.raises(TypeError, match=r"Auth is a class.*Auth\(\.\.\.\)"):
        PLACES[place](channel, Auth)


@pytest.mark.parametrize("place", PLACES)
def test_an_object_without_any_callback_is_no_interceptor(channel: Channel, place: str) -> None:
    for given in (None, "Auth", 3, object(), lambda hop: None):
        with pytest.raises(TypeError, match=r"no interceptor: it has none of .*on_start"):
            PLACES[place](channel, given)


def test_any_object_with_a_callback_is_one(channel: Channel) -> None:
    class Plain:
        def on_send(self, hop: Hop) -> None: ...

    for given in (Plain(), Interceptor(), SyncInterceptor(), CompletionInterceptor()):
        channel.add_interceptor(given)
    assert unary(channel) == b"x"


@pytest.mark.parametrize(
    ("base", "name", "meant"),
    [
        (Interceptor, "on_recieve", "on_receive"),
        (Interceptor, "on_header", "on_headers"),
        (Interceptor, "onStart", "on_start"),
        (Interceptor, "destory", "destroy"),
        (object, "on_satus", "on_status"),
        (SyncInterceptor, "intercpet", "intercept"),
        (CompletionInterceptor, "on_half_closed_", None),
        (CompletionInterceptor, "on_statuss", None),
        (CompletionInterceptor, "on_hedaers", "on_headers"),
    ],
)
def test_a_name_that_is_nearly_a_callback_s_gets_a_warning(
    channel: Channel, base: type, name: str, meant: str
) -> None:
    members: Dict[str, Any] = {name: lambda self, hop: None}
    if base is object:
        members["on_start"] = lambda self, hop: None
    kind = type("Mine", (base,), members)
    if meant is None:
        channel.add_interceptor(kind())
        return
    with pytest.warns(InterceptorWarning, match=rf"Mine\.{name} .* did you mean {meant}") as caught:
        channel.add_interceptor(kind())
    assert [warning.filename for warning in caught] == [__file__]
    # A second object of the class gives no warning.
    channel.add_interceptor(kind())


def test_a_method_of_the_object_s_own_is_looked_at_too(channel: Channel) -> None:
    with pytest.warns(InterceptorWarning, match="on_sned"):
        channel.add_interceptor(Only(on_sned=lambda hop: None))


def test_other_names_are_no_mistakes(channel: Channel) -> None:
    class Mine(Interceptor):
        on_recieved_count = 0
        on_recieve = 3  # type: ignore[assignment]

        def created(self) -> None: ...
        def start(self) -> None: ...
        def on_start_of_stream(self) -> None: ...
        def _on_sent(self) -> None: ...
        def status(self) -> None: ...

    channel.add_interceptor(Mine())


def test_the_warning_can_be_turned_off(channel: Channel) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InterceptorWarning)
        channel.add_interceptor(type("Mine", (Interceptor,), {"on_recieve": lambda self, hop: None})())


def test_a_warning_that_is_an_error_registers_nothing(channel: Channel) -> None:
    with pytest.raises(InterceptorWarning):
        channel.add_interceptor(type("Mine", (Interceptor,), {"on_recieve": lambda self, hop: None})())
    assert channel.interceptors == []
