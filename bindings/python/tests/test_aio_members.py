"""Every member of `penstock.aio`'s calls in each state, and of the hops that `async def` callbacks get."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, Awaitable, Callable, Dict, List, Optional

import pytest

import penstock
from aio_helpers import each, eventually, opened, raises, run_on, turn
from helpers import Only
from penstock import EventKind, GoneError, Hop, RpcError, StateError, StatusCode, Verdict, aio

ECHO = "/penstock.Echo/"
HANG_STREAM = "/penstock.Probe/HangStream"


def using(server: str, work: Callable[[Any], Awaitable[Any]], **options: Any) -> Any:
    """The result of ``work(channel)``."""

    async def use() -> Any:
        async with opened(server, **options) as channel:
            return await work(channel)

    return run_on(asyncio.new_event_loop, use())


# ---- Calls ----


def test_a_call_that_runs_and_is_cancelled(server: str) -> None:
    async def work(channel: Any) -> None:
        call = channel.unary_stream(HANG_STREAM)(b"", timeout=600, trace=True)
        assert repr(call) == f"<penstock.aio.UnaryStreamCall {HANG_STREAM}, running>"
        assert (call.done(), call.cancelled()) == (False, False)
        assert 0 < call.time_remaining() <= 600
        assert await call.read() == b"first"
        assert call.trace["method"] == HANG_STREAM
        assert call.trace["ended"] is False
        call.values["a"] = 1
        assert call.values["a"] == 1
        told: List[Any] = []
        call.add_done_callback(told.append)
        assert call.cancel("enough") is True
        assert await call.code() is StatusCode.CANCELLED
        assert await call.details() == "enough"
        await eventually(lambda: bool(told))
        call.add_done_callback(told.append)
        assert told == [call]
        await turn()
        await turn()
        assert told == [call, call]
        assert (call.done(), call.cancelled(), call.cancel()) == (True, True, False)
        assert repr(call) == f"<penstock.aio.UnaryStreamCall {HANG_STREAM}, CANCELLED>"
        assert call.trace["ended"] is True
        assert call.values["a"] == 1
        error = await raises(RpcError, call.read())
        assert error.code() is StatusCode.CANCELLED
        assert (await call.trailing_metadata()).get_all("x") == []

    using(server, work)


def test_the_words_of_a_cancel_without_a_reason(server: str) -> None:
    async def work(channel: Any) -> None:
        call = channel.unary_unary("/penstock.Probe/Hang")(b"")
        assert call.time_remaining() is None
        assert call.cancel()
        assert await call.details() == "Locally cancelled by application!"
        assert isinstance(await call.outcome(), RpcError)

    using(server, work)


def test_a_call_that_ends_well(server: str) -> None:
    async def work(channel: Any) -> None:
        call = channel.unary_unary(f"{ECHO}Unary")(b"x")
        assert await call == b"x"
        assert await call == b"x"
        outcome = await call.outcome()
        assert (outcome.code(), outcome.details()) == (StatusCode.OK, "")
        assert (await call.code(), await call.details()) == (StatusCode.OK, "")
        assert (call.done(), call.cancelled(), call.cancel()) == (True, False, False)
        assert repr(call) == f"<penstock.aio.UnaryCall {ECHO}Unary, OK>"
        assert call.trace == {}
        assert "a" not in call.values
        kinds: Dict[Any, Any] = {
            aio.StreamUnaryCall: channel.stream_unary(f"{ECHO}ClientStream")([b"a"]),
            aio.StreamStreamCall: channel.stream_stream(f"{ECHO}Bidi")(each(b"a")),
        }
        assert all(type(one) is kind for kind, one in kinds.items())
        assert await kinds[aio.StreamUnaryCall] == b"a"
        assert [message async for message in kinds[aio.StreamStreamCall]] == [b"a"]
        assert [await one.code() for one in kinds.values()] == [StatusCode.OK] * 2

    using(server, work)


def test_streams_that_are_read_and_written(server: str) -> None:
    async def work(channel: Any) -> None:
        call = channel.stream_stream(f"{ECHO}Bidi")()
        await call.write(b"a")
        assert await call.read() == b"a"
        await call.done_writing()
        await call.done_writing()
        said = "no message can be written: done_writing has been called"
        assert said in str(await raises(StateError, call.write(b"b")))
        assert await call.read() is aio.EOF
        assert await call.read() is aio.EOF
        assert not aio.EOF
        given = channel.stream_stream(f"{ECHO}Bidi")([b"a", b"b"])
        said = "no message can be written: the requests were given to the call"
        assert said in str(await raises(StateError, given.write(b"c")))
        assert said in str(await raises(StateError, given.done_writing()))
        assert [message async for message in given] == [b"a", b"b"]

    using(server, work)


def test_writing_to_a_call_that_has_ended(server: str) -> None:
    async def work(channel: Any) -> None:
        early = channel.stream_unary("/penstock.Probe/Early")()
        assert await early.code() is StatusCode.FAILED_PRECONDITION
        error = await raises(RpcError, early.write(b"a"))
        assert (error.code(), error.details()) == (StatusCode.FAILED_PRECONDITION, "not now")
        ended = channel.stream_stream(f"{ECHO}Bidi")()
        await ended.done_writing()
        assert await ended.read() is aio.EOF
        ended._is_half_closed = False
        assert "the call has ended" in str(await raises(GoneError, ended.write(b"a")))

    using(server, work)


def test_writing_to_a_call_that_was_just_cancelled(server: str) -> None:
    async def work(channel: Any) -> None:
        call = channel.stream_stream(f"{ECHO}Bidi")()
        await call.write(b"a")
        call.cancel("enough")
        # Its end is still to come.
        assert not call.done()
        assert "the call has ended" in str(await raises(GoneError, call.write(b"b")))
        assert await call.code() is StatusCode.CANCELLED
        error = await raises(RpcError, call.write(b"c"))
        assert (error.code(), error.details()) == (StatusCode.CANCELLED, "enough")

    using(server, work)


def test_a_list_of_requests_that_has_no_room(server: str) -> None:
    """The rest is sent as room comes."""

    async def work(channel: Any) -> None:
        given = [bytes([number]) * 60_000 for number in range(40)]
        for requests in (given, tuple(given), iter(given), each(*given)):
            assert await channel.stream_unary(f"{ECHO}ClientStream")(requests, timeout=60) == b"".join(given)
        call = channel.stream_stream(f"{ECHO}Bidi")(given, timeout=60)
        assert [message async for message in call] == given

    using(server, work)


def test_headers_of_a_call(server: str) -> None:
    async def work(channel: Any) -> None:
        call = channel.unary_unary("/penstock.Probe/Unary")(b'{"initial": [["a", "1"]], "trailing": [["b", "2"]]}')
        assert (await call.initial_metadata()).get("a") == "1"
        assert (await call.trailing_metadata()).get("b") == "2"
        refused = aio.Channel("127.0.0.1:1", tls=False)
        failing = refused.unary_unary(f"{ECHO}Unary")(b"x")
        assert await failing.initial_metadata() == ()
        assert await failing.code() is StatusCode.UNAVAILABLE
        await refused.close()

    using(server, work)


# ---- Hops of async callbacks ----


class Async(penstock.Interceptor):
    """An interceptor with these `async def` callbacks."""

    def __init__(self, **callbacks: Callable[[Any], Awaitable[Any]]) -> None:
        for name, callback in callbacks.items():
            setattr(self, name, callback)


def test_the_status_that_an_async_callback_sees(server: str) -> None:
    seen: List[Any] = []

    async def on_status(hop: Hop) -> None:
        seen.append((hop.event, hop.status.code, hop.metadata.get("a")))
        hop.status.message = "changed"

    async def on_start(hop: Any) -> None:
        seen.append((hop.event, hop.ticket().number == hop.number))

    async def work(channel: Any) -> None:
        channel.add_interceptor(Async(on_status=on_status, on_start=on_start))
        wish = b'{"code": 5, "message": "no", "trailing": [["a", "1"]]}'
        error = await raises(RpcError, channel.unary_unary("/penstock.Probe/Unary")(wish))
        assert error.details() == "changed"

    using(server, work)
    assert seen == [(EventKind.START, True), (EventKind.STATUS, StatusCode.NOT_FOUND, "1")]


# Ends a call above another interceptor, which learns of that by `on_cancel`.
ABOVE = Only(on_headers=lambda hop: hop.end(StatusCode.ABORTED, "above"))


def test_a_cancel_is_seen_as_a_copy(server: str) -> None:
    seen: List[Any] = []

    async def look(hop: Any) -> None:
        seen.append((hop.status.code, hop.status.message, len(hop.metadata), hop.count))
        for change in (lambda: setattr(hop, "count", 1), lambda: hop.ticket()):
            with pytest.raises(StateError):
                change()

    async def work(channel: Any) -> None:
        channel.add_interceptor(Async(on_cancel=look))
        channel.add_interceptor(ABOVE, priority=1)
        error = await raises(RpcError, channel.unary_unary(f"{ECHO}Unary")(b"x"))
        assert error.code() is StatusCode.ABORTED
        await eventually(lambda: bool(seen))

    using(server, work)
    assert seen == [(StatusCode.ABORTED, "above", 0, 0)]


def test_counts_are_seen_and_stay(server: str) -> None:
    seen: Dict[str, List[int]] = {"on_demand": [], "on_sent": []}
    said: List[str] = []

    def looking(name: str) -> Any:
        async def look(hop: Any) -> None:
            seen[name].append(hop.count)
            for use in (lambda: hop.status, lambda: hop.metadata, lambda: setattr(hop, "count", 5)):
                with pytest.raises(StateError) as caught:
                    use()
                said.append(caught.value.message)

        return look

    async def work(channel: Any) -> None:
        channel.add_interceptor(Async(on_demand=looking("on_demand"), on_sent=looking("on_sent")))
        assert [one async for one in channel.stream_stream(f"{ECHO}Bidi")([b"a", b"b"])] == [b"a", b"b"]
        await eventually(lambda: sum(seen["on_sent"]) == 2)

    using(server, work)
    assert all(count > 0 for count in seen["on_demand"])
    assert sorted(set(said)) == [
        "an async callback comes too late to change the count",
        "there is no status in DEMAND",
        "there is no status in SENT",
    ]


@pytest.mark.parametrize("callback", ["on_cancel", "destroy", "on_demand"])
def test_an_observer_that_raises_is_told_of(server: str, callback: str) -> None:
    told: List[Any] = []

    async def fails(hop: Any) -> None:
        raise LookupError(callback)

    async def work(channel: Any) -> None:
        channel.add_interceptor(Async(**{callback: fails}), name="mine")
        channel.add_interceptor(ABOVE, priority=1)
        call = channel.unary_unary(f"{ECHO}Unary")(b"x")
        assert await call.code() is StatusCode.ABORTED
        await eventually(lambda: bool(told))

    penstock.set_exception_hook(lambda name, where, error: told.append((name, where, str(error))))
    try:
        using(server, work)
    finally:
        penstock.set_exception_hook(None)
    assert set(told) == {("mine", callback, callback)}


VERDICTS = [None, Verdict.NEXT]


@pytest.mark.parametrize("verdict", VERDICTS)
def test_an_async_callback_that_lets_go_on(server: str, verdict: Optional[Verdict]) -> None:
    async def on_start(hop: Hop) -> Optional[Verdict]:
        await turn()
        hop.metadata["x-seen"] = "1"
        return verdict

    async def work(channel: Any) -> Any:
        channel.add_interceptor(Async(on_start=on_start))
        return await channel.unary_unary("/penstock.Probe/Unary")(b"{}")

    assert b'["x-seen", "1"]' in using(server, work)


@pytest.mark.parametrize("returned", ["next", 99, object(), Verdict.PAUSE, Verdict.HOLD])
def test_an_answer_of_an_async_callback_that_makes_no_sense(server: str, returned: Any) -> None:
    told: List[Any] = []

    async def on_start(hop: Hop) -> Any:
        return returned

    async def work(channel: Any) -> Any:
        channel.add_interceptor(Async(on_start=on_start), name="mine")
        error = await raises(RpcError, channel.unary_unary(f"{ECHO}Unary")(b"x", timeout=60))
        assert error.code() is StatusCode.INTERNAL
        assert "mine" in error.details()

    penstock.set_exception_hook(lambda *details: told.append(details[:2]))
    try:
        using(server, work)
    finally:
        penstock.set_exception_hook(None)
    assert told == [("mine", "on_start")]


def test_the_task_of_a_callback_that_raises_ends_well(server: str) -> None:
    """The exception is the call's: the loop has nothing to tell."""
    told: List[Any] = []

    async def on_start(hop: Hop) -> Any:
        raise LookupError("no")

    async def work(channel: Any) -> Any:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["message"]))
        channel.add_interceptor(Async(on_start=on_start))
        error = await raises(RpcError, channel.unary_unary(f"{ECHO}Unary")(b"x", timeout=60))
        assert isinstance(error.__cause__, LookupError)
        await turn()
        gc.collect()

    penstock.set_exception_hook(lambda *_: None)
    try:
        using(server, work)
        gc.collect()
    finally:
        penstock.set_exception_hook(None)
    assert told == []


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("skips", [True, False])
def test_an_async_create_and_its_start(server: str, skips: bool, is_async: bool) -> None:
    seen: List[Any] = []

    class Creates(penstock.Interceptor):
        async def create(self, hop: Hop) -> Any:
            return Verdict.SKIP if skips else "state"

        def on_headers(self, hop: Hop) -> None:
            seen.append(("headers", hop.state))

        def destroy(self, hop: Hop) -> None:
            seen.append(("destroy", None if skips else hop.state))

    if is_async:

        async def start(self: Any, hop: Hop) -> None:
            seen.append(("start", hop.state))

        Creates.on_start = start  # type: ignore[method-assign, assignment]
    else:
        Creates.on_start = lambda self, hop: seen.append(("start", hop.state))  # type: ignore[method-assign]

    async def work(channel: Any) -> None:
        channel.add_interceptor(Creates())
        assert await channel.unary_unary(f"{ECHO}Unary")(b"x") == b"x"
        await eventually(lambda: skips or len(seen) == 3)

    using(server, work)
    wanted = [("start", "state"), ("headers", "state"), ("destroy", "state")]
    assert [one for one in seen if not skips or one[0] != "destroy"] == ([] if skips else wanted)


def test_a_hop_that_has_taken_a_call_answers_later(server: str) -> None:
    kept: List[Hop] = []

    async def take(hop: Hop) -> Verdict:
        kept.append(hop)
        return Verdict.TAKE

    async def work(channel: Any) -> None:
        channel.add_interceptor(Async(on_start=take))
        call = channel.unary_unary(f"{ECHO}Unary")(b"x", timeout=60)
        await eventually(lambda: bool(kept))
        for _ in range(5):
            await turn()
        kept[0].deliver_headers({})
        kept[0].deliver_message(b"mine")
        kept[0].deliver_status(StatusCode.OK)
        assert await call == b"mine"
        kept.clear()

    using(server, work)
