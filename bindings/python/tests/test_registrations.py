"""Registrations to the letter: their properties, bounds and attributes, and what an interceptor may be."""

from __future__ import annotations

import gc
from typing import Any, Dict, List, Optional, Tuple

import pytest

import penstock
from helpers import Only, unary
from penstock import Channel, Hop, Kind, Level, RpcError, Verdict, ready
from penstock._interceptors import executor as executors
from penstock._interceptors import interceptor as kinds_of_interceptors
from penstock._interceptors import registration as registrations
from penstock._raw import constants as c

MOST = 2**63 - 1


def nothing(hop: Hop) -> None:
    """A callback."""


@pytest.mark.parametrize(
    ("given", "mask", "shown"),
    [
        (None, 0, None),
        (Kind.UNARY, 1 << Kind.UNARY, (Kind.UNARY,)),
        ([Kind.BIDI], 1 << Kind.BIDI, (Kind.BIDI,)),
        ((Kind.BIDI, Kind.UNARY), (1 << Kind.BIDI) | (1 << Kind.UNARY), (Kind.UNARY, Kind.BIDI)),
        (list(Kind), sum(1 << kind for kind in Kind), tuple(Kind)),
        ([int(Kind.SERVER_STREAM)], 1 << Kind.SERVER_STREAM, (Kind.SERVER_STREAM,)),
    ],
)
def test_kinds_of_calls(channel: Channel, given: Any, mask: int, shown: Any) -> None:
    assert registrations._mask(given) == mask
    made = channel.add_interceptor(Only(on_start=nothing), kinds=given)
    assert made.kinds == shown
    other = channel.add_interceptor(Only(on_start=nothing))
    assert other.kinds is None
    other.kinds = given
    assert other.kinds == shown


@pytest.mark.parametrize("given", [(), []])
def test_no_kinds_at_all(channel: Channel, given: Any) -> None:
    said = r"^kinds is empty: name at least one kind of call, or use None for all$"
    with pytest.raises(ValueError, match=said):
        channel.add_interceptor(Only(on_start=nothing), kinds=given)
    made = channel.add_interceptor(Only(on_start=nothing), kinds=Kind.UNARY)
    with pytest.raises(ValueError, match=said):
        made.kinds = given
    assert made.kinds == (Kind.UNARY,)
    assert registrations._headers_mask(given) == c.HEADERS_PASS
    assert registrations._headers_mask(None) == 0
    assert registrations._headers_mask(Kind.BIDI) == registrations._headers_mask([Kind.BIDI]) == 1 << Kind.BIDI


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (None, None),
        ("/a/b", ("/a/b",)),
        ("/a/b, /c/*", ("/a/b", "/c/*")),
        (["/a/b", "/c/*"], ("/a/b", "/c/*")),
        (lambda: iter(["/a/b"]), ("/a/b",)),
    ],
)
def test_patterns_of_methods(channel: Channel, given: Any, shown: Any) -> None:
    made = channel.add_interceptor(Only(on_start=nothing), methods=given() if callable(given) else given)
    assert made.methods == shown
    made.methods = None
    assert made.methods is None
    made.methods = shown
    assert made.methods == shown


@pytest.mark.parametrize("wrong", ["/a/*/b", "a b"])
def test_a_pattern_that_is_wrong(channel: Channel, wrong: str) -> None:
    with pytest.raises(penstock.InvalidArgumentError):
        channel.add_interceptor(Only(on_start=nothing), methods=wrong)
    made = channel.add_interceptor(Only(on_start=nothing), methods="/a/b")
    with pytest.raises(penstock.InvalidArgumentError):
        made.methods = wrong
    assert made.methods == ("/a/b",)


@pytest.mark.parametrize("priority", [-(2**31), -1, 0, 2**31 - 1])
def test_priorities(channel: Channel, priority: int) -> None:
    made = channel.add_interceptor(Only(on_start=nothing), priority)
    assert made.priority == priority
    assert channel.interceptors[0]["priority"] == priority
    made.priority = 5
    assert (made.priority, channel.interceptors[0]["priority"]) == (5, 5)
    assert repr(made) == f"<Registration {made.id} of 'Only', priority 5>"
    assert made.id == channel.interceptors[0]["id"] > 0


@pytest.mark.parametrize("priority", [-(2**31) - 1, 2**31])
def test_priorities_out_of_range(channel: Channel, priority: int) -> None:
    said = f"priority must be from -2147483648 to 2147483647, not {priority}"
    made = channel.add_interceptor(Only(on_start=nothing), 3)
    changes = (lambda: channel.add_interceptor(Placed(), priority), lambda: setattr(made, "priority", priority))
    for change in changes:
        with pytest.raises(penstock.InvalidArgumentError) as caught:
            change()
        assert caught.value.message == said
    assert made.priority == 3
    assert len(channel.interceptors) == 1


def with_attributes(**attributes: Any) -> Only:
    made = Only(on_start=nothing)
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("name", "low", "high"), [("hold_bytes", 0, MOST), ("replay_bytes", 0, MOST), ("max_restarts", 1, MOST)]
)
def test_attributes_with_bounds(channel: Channel, name: str, low: int, high: int) -> None:
    for fine in (low, high):
        channel.add_interceptor(with_attributes(**{name: fine}))
    for wrong in (low - 1, high + 1):
        with pytest.raises(penstock.InvalidArgumentError) as caught:
            channel.add_interceptor(with_attributes(**{name: wrong}))
        assert caught.value.message == f"{name} must be from {low} to {high}, not {wrong}"
    with pytest.raises(TypeError, match=f"^{name} must be an int, not str$"):
        channel.add_interceptor(with_attributes(**{name: "1"}))


def test_restarts_without_a_limit_are_for_synchronous_ones() -> None:
    assert registrations._restarts(Only(on_start=nothing)) == 1
    assert registrations._restarts(penstock.SyncInterceptor()) == 0

    class Bare:
        def intercept(self, call: Any) -> None: ...

    assert registrations._restarts(Bare()) == 0
    assert registrations._restarts(with_attributes(max_restarts=7)) == 7


class Placed(penstock.Interceptor):
    """One whose place is said by its attributes."""

    name = "placed"
    level = Level.BOTH
    per_attempt = True
    hold_bytes = 9

    def on_start(self, hop: Hop) -> None: ...


def test_attributes_and_arguments(channel: Channel) -> None:
    made = channel.add_interceptor(Placed())
    assert (made.name, made.level, made.per_attempt, made._hold_bytes) == ("placed", Level.BOTH, True, 9)
    other = channel.add_interceptor(Placed(), name="other", level=Level.BYTES, per_attempt=False, hold_bytes=3)
    assert (other.name, other.level, other.per_attempt, other._hold_bytes) == ("other", Level.BYTES, False, 3)
    plain = channel.add_interceptor(Only(on_start=nothing))
    assert (plain.name, plain.level, plain.per_attempt, plain._hold_bytes) == ("Only", Level.BYTES, False, 0)
    with pytest.raises(penstock.InvalidArgumentError):
        channel.add_interceptor(Only(on_start=nothing), name="a\0")


def test_a_replacement_keeps_what_is_not_given(channel: Channel) -> None:
    first = channel.add_interceptor(Only(on_start=nothing), 7, "/a/b", Kind.UNARY, "first", 5)
    second = first.replace(Placed())
    assert (second.priority, second.methods, second.kinds, second._hold_bytes) == (7, ("/a/b",), (Kind.UNARY,), 5)
    assert (second.name, second.level, second.per_attempt) == ("placed", Level.BOTH, True)
    given: Any = {"methods": None, "kinds": None, "hold_bytes": 6, "name": "third"}
    third = second.replace(Only(on_start=nothing), level=Level.OBJECT, per_attempt=False, **given)
    assert (third.priority, third.methods, third.kinds, third._hold_bytes) == (7, None, None, 6)
    assert (third.name, third.level, third.per_attempt) == ("third", Level.OBJECT, False)
    assert [one["id"] for one in channel.interceptors] == [third.id]
    with pytest.raises(penstock.NotFoundError):
        first.replace(Placed())
    # Removing what was replaced does nothing.
    first.remove()
    assert [one["id"] for one in channel.interceptors] == [third.id]


def test_removing(channel: Channel) -> None:
    made = channel.add_interceptor(Only(on_start=nothing))
    with pytest.raises(penstock.StateError) as caught:
        made.wait_removed(0)
    assert caught.value.message == "the interceptor is still registered"
    made.remove()
    made.remove()
    assert channel.interceptors == []
    assert made.wait_removed(0) is True
    assert made.wait_removed() is True
    for change in (lambda: setattr(made, "priority", 1), lambda: setattr(made, "methods", "/a/b")):
        with pytest.raises(penstock.NotFoundError):
            change()


def test_waiting_while_a_call_has_the_interceptor(channel: Channel) -> None:
    made = channel.add_interceptor(Only(on_start=nothing))
    call = channel.unary_stream("/penstock.Probe/HangStream")(b"")
    assert next(call) == b"first"
    made.remove()
    assert made.wait_removed(0) is False
    assert made.wait_removed(0.25) is False
    call.cancel()
    assert made.wait_removed(60) is True


def test_interceptors_of_one_call(channel: Channel) -> None:
    seen: List[str] = []

    def named(name: str) -> Only:
        return Only(on_start=lambda hop: seen.append(name))

    channel.add_interceptor(named("channel"), 5)
    call = channel.unary_unary("/penstock.Echo/Unary")
    assert call(b"x", interceptors=[named("plain"), (named("high"), 9), (named("low"), -9)]) == b"x"
    assert seen == ["high", "channel", "plain", "low"]


# ---- What an interceptor may be ----


class Both(penstock.SyncInterceptor):
    def intercept(self, call: Any) -> None: ...

    def on_start(self, hop: Hop) -> None: ...


async def later(hop: Any) -> None: ...


WRONG: List[Tuple[Any, str]] = [
    (Only, "Only is a class, not an interceptor: register an instance of it, Only(...)"),
    (Only(on_start=5), "Only.on_start is not callable"),
    (Only(intercept=5), "Only.intercept is not callable"),
    (Only(intercept=later), "Only.intercept is async, which is not supported"),
    (Only(intercept=nothing, on_start=nothing), "Only has both intercept and callbacks: register two interceptors"),
    (Both(), "Both has both intercept and callbacks: register two interceptors"),
    (Only(on_pick=later), "Only.on_pick is async, but the choice of an address can't wait"),
    (Only(on_start=later), "Only has async callbacks, which only channels of penstock.aio and their calls can have"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG)
def test_what_is_no_interceptor(channel: Channel, wrong: Any, said: str) -> None:
    for register in (
        lambda: channel.add_interceptor(wrong),
        lambda: unary(channel, interceptors=[wrong]),
        lambda: unary(channel, interceptors=[(wrong, 3)]),
    ):
        with pytest.raises(TypeError) as caught:
            register()
        assert str(caught.value) == said
    assert channel.interceptors == []
    assert unary(channel) == b"x"


def test_an_object_without_callbacks(channel: Channel) -> None:
    thing = object()
    with pytest.raises(TypeError) as caught:
        channel.add_interceptor(thing)
    said = str(caught.value)
    assert said.startswith(f"{thing!r} is no interceptor: it has none of intercept, ")
    for name in ("create", "destroy", "on_start", "on_pick", "on_connection"):
        assert name in said


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("on_strat", "on_start"),
        ("onStart", "on_start"),
        ("on_header", "on_headers"),
        ("on_recieve", "on_receive"),
        ("creat", "create"),
        ("destory", "destroy"),
        ("start", None),
        ("status", None),
        ("_on_strat", None),
        ("on_start", None),
        ("on_start_again", None),
        ("created", None),
        ("something", None),
    ],
)
def test_names_that_are_nearly_those_of_callbacks(name: str, meant: Optional[str]) -> None:
    callbacks = ("intercept", *kinds_of_interceptors._CALLBACKS)
    assert kinds_of_interceptors._meant(name, callbacks) == meant


def test_a_warning_points_to_the_program(channel: Channel) -> None:
    with pytest.warns(penstock.InterceptorWarning) as caught:
        channel.add_interceptor(Only(on_start=nothing, on_strat=nothing))
    (warning,) = caught
    assert str(warning.message) == "Only.on_strat is not a callback and is never called; did you mean on_start?"
    assert warning.filename == __file__


# ---- Executors ----


@pytest.mark.parametrize("wrong", [None, 5, "pool"])
def test_an_executor_has_a_function(wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"^submit must be callable, got {wrong!r}$"):
        penstock.Executor(wrong)


def test_the_executors_that_an_interceptor_names() -> None:
    one, two, three = (penstock.Executor(lambda job: job()) for _ in range(3))
    for given, wanted in (
        ({}, (None, None)),
        ({"executor": one}, (one, one)),
        ({"outbound_executor": two}, (two, None)),
        ({"inbound_executor": three}, (None, three)),
        ({"executor": one, "outbound_executor": two}, (two, one)),
        ({"executor": one, "inbound_executor": three}, (one, three)),
        ({"outbound_executor": two, "inbound_executor": three}, (two, three)),
    ):
        assert executors.chosen(with_attributes(**given)) == wanted
    assert executors.address(None) is None
    with pytest.raises(TypeError, match=r"^expected a penstock\.Executor, got 5$"):
        executors.address(5)  # type: ignore[arg-type]


def test_a_job_runs_once() -> None:
    ran: List[Any] = []
    job = executors.Job(ran.append, 5)
    job()
    job()
    assert ran == [5]
    assert job._revoke() is False
    other = executors.Job(ran.append, 6)
    assert other._revoke() is True
    assert other._revoke() is False
    other()
    assert ran == [5]


@pytest.mark.parametrize("begins", [False, True])
def test_an_executor_that_raises(channel: Channel, begins: bool) -> None:
    told: List[Any] = []
    jobs: List[Any] = []

    def submit(job: Any) -> None:
        jobs.append(job)
        if begins:
            job()
        raise LookupError("full")

    made = with_attributes(executor=penstock.Executor(submit))
    channel.add_interceptor(made)
    penstock.set_exception_hook(lambda name, callback, error: told.append((name, callback, str(error))))
    try:
        if begins:
            assert unary(channel) == b"x"
        else:
            with pytest.raises(RpcError) as caught:
                unary(channel)
            assert caught.value.code() is penstock.StatusCode.INTERNAL
            for job in jobs:
                job()
    finally:
        penstock.set_exception_hook(None)
    assert set(told) == {("", "submit", "full")}


def test_executors_of_one_call(channel: Channel) -> None:
    used: Dict[str, int] = {"out": 0, "in": 0}

    def counting(name: str) -> penstock.Executor:
        def submit(job: Any) -> None:
            used[name] += 1
            job()

        return penstock.Executor(submit)

    both = {name: counting(name) for name in used}

    class Chooses(penstock.Interceptor):
        def create(self, hop: Hop) -> None:
            hop.set_executors(both["out"], both["in"])

        def on_start(self, hop: Hop) -> None: ...

        def on_headers(self, hop: Hop) -> Optional[Verdict]:
            return None

    made = channel.add_interceptor(Chooses())
    assert unary(channel) == b"x"
    assert used["out"] > 0
    assert used["in"] > 0
    made.remove()
    assert made.wait_removed(60)
    both.clear()
    gc.collect()


def test_ready_made_interceptors_take_the_same_arguments(channel: Channel) -> None:
    made = channel.add_interceptor(ready.TraceContext(), 3, "/a/*", Kind.UNARY, "tracing")
    (listed,) = channel.interceptors
    assert (listed["name"], listed["priority"], listed["methods"]) == ("tracing", 3, "/a/*")
    assert (made.name, made.kinds) == ("tracing", (Kind.UNARY,))
    assert channel.add_interceptor(ready.TraceContext()).name == "TraceContext"
