"""Interceptors on an event loop: `async def` callbacks, for which their events wait, beside ordinary ones."""

from __future__ import annotations

import asyncio
import contextvars
import json
from typing import Any, Callable, Dict, List

import pytest

import helpers
import penstock
from aio_helpers import LOOPS, Runner, each, eventually, opened, raises, run_on, turn
from conftest import json_bytes
from penstock import Hop, Interceptor, RpcError, StatusCode, Verdict, aio
from penstock._calls.carried import left
from penstock._handles.objects import registry
from test_leaks import soon

USER: contextvars.ContextVar[str] = contextvars.ContextVar("USER", default="nobody")


@pytest.fixture(params=sorted(LOOPS))
def run(request: pytest.FixtureRequest) -> Runner:
    return lambda work: run_on(LOOPS[request.param], work)


class Async(Interceptor):
    """An interceptor with `async def` callbacks that record, and wait a turn of the loop."""

    def __init__(self, log: List[str]) -> None:
        self.log = log

    async def _see(self, event: str) -> None:
        self.log.append(event)
        await turn()
        assert asyncio.current_task() is not None
        self.log.append(event + "!")

    async def create(self, hop: Hop) -> Any:
        await self._see("create")
        return {"user": USER.get()}

    async def on_start(self, hop: Hop) -> None:
        await self._see("start")
        assert hop.state == {"user": "ada"}
        hop.metadata["x-user"] = USER.get()
        USER.set("changed")

    async def on_send(self, hop: Hop) -> None:
        await self._see("send")
        assert USER.get() == "ada"
        hop.message = hop.message + b"+"

    async def on_half_close(self, hop: Hop) -> None:
        await self._see("half_close")

    async def on_headers(self, hop: Hop) -> None:
        await self._see("headers")
        hop.metadata["x-seen"] = "1"

    async def on_receive(self, hop: Hop) -> None:
        await self._see("receive")
        hop.message = hop.message + b"-"

    async def on_status(self, hop: Hop) -> None:
        await self._see("status")
        if hop.status.code is StatusCode.OK:
            hop.metadata["x-late"] = "2"

    async def destroy(self, hop: Hop) -> None:
        await self._see("destroy")
        assert hop.state == {"user": "ada"}


def test_the_hop_of_a_waiting_callback_may_be_used_on_another_thread(server: str, run: Runner) -> None:
    kept: List[Hop] = []

    class Look(Interceptor):
        async def on_start(self, hop: Hop) -> None:
            kept.append(await asyncio.to_thread(hop.retain))
            (await asyncio.to_thread(hop.ticket)).event().metadata["x-user"] = "ada"
            await asyncio.to_thread(helpers.eventually, lambda: hop.trace["holder"] is not None)

    async def work() -> None:
        async with aio.Channel(server, tls=False, interceptors=[Look()]) as channel:
            assert await channel.unary_unary("/penstock.Echo/Unary")(b"x") == b"x"

    run(work())
    assert len(kept) == 1


def test_every_callback_may_be_async(server: str, run: Runner) -> None:
    async def work() -> None:
        log: List[str] = []
        async with opened(server, interceptors=[(Async(log), 10)]) as channel:
            USER.set("ada")
            call = channel.unary_unary("/penstock.Echo/Unary")(b"x")
            assert await call == b"x+-"
            assert (await call.initial_metadata()).get("x-seen") == "1"
            assert (await call.trailing_metadata()).get("x-late") == "2"
            assert USER.get() == "ada"
            await eventually(lambda: log[-1] == "destroy!")
        order = ["create", "start", "send", "half_close", "headers", "receive", "status", "destroy"]
        assert [event for event in log if not event.endswith("!")] == order
        assert sorted(log) == sorted([*order, *(event + "!" for event in order)])
        for event in order:
            assert log.index(event) < log.index(event + "!")

    run(work())


def test_events_of_a_lane_wait_for_the_coroutine(server: str, run: Runner) -> None:
    class Slow(Interceptor):
        def __init__(self) -> None:
            self.order: List[bytes] = []
            self.inside = 0

        async def on_receive(self, hop: Hop) -> None:
            self.inside += 1
            assert self.inside == 1
            for _ in range(5):
                await turn()
            self.order.append(hop.message)
            self.inside -= 1

    async def work() -> None:
        slow = Slow()
        async with opened(server, interceptors=[slow]) as channel:
            sent = [b"%d" % number for number in range(20)]
            both = channel.stream_stream("/penstock.Echo/Bidi")(each(*sent))
            assert [message async for message in both] == sent
            assert slow.order == sent

    run(work())


def test_verdicts_registrations_and_sync_methods(server: str, run: Runner) -> None:
    class Drop(Interceptor):
        def __init__(self) -> None:
            self.started = 0

        def on_start(self, hop: Hop) -> None:
            self.started += 1

        async def on_receive(self, hop: Hop) -> Any:
            await turn()
            return Verdict.DROP if hop.message == b"2" else None

    class Take(Interceptor):
        async def on_start(self, hop: Hop) -> Verdict:
            await turn()
            hop.deliver_headers({"x-here": "1"})
            hop.deliver_message(b"mine")
            hop.deliver_status(StatusCode.OK)
            return Verdict.TAKE

    class Skip(Interceptor):
        async def create(self, hop: Hop) -> Verdict:
            return Verdict.SKIP

        def on_start(self, hop: Hop) -> None:
            raise AssertionError("skipped")

        async def on_status(self, hop: Hop) -> None:
            raise AssertionError("skipped")

    class Again(Interceptor):
        replay_bytes = 1000

        async def on_status(self, hop: Hop) -> Any:
            if hop.status.code is StatusCode.UNAUTHENTICATED:
                await turn()
                hop.request_metadata["authorization"] = "Bearer new"
                return Verdict.RESTART
            return None

    async def work() -> None:
        async with opened(server) as channel:
            drop = Drop()
            registration = channel.add_interceptor(drop, priority=5, methods="/penstock.Echo/*")
            bidi = channel.stream_stream("/penstock.Echo/Bidi")
            assert [message async for message in bidi([b"1", b"2", b"3"])] == [b"1", b"3"]
            assert drop.started == 1
            registration = registration.replace(Take())
            echo = channel.unary_unary("/penstock.Echo/Unary")
            call = echo(b"x")
            assert await call == b"mine"
            assert (await call.initial_metadata()).get("x-here") == "1"
            registration.remove()
            assert await echo(b"x") == b"x"
            assert await echo(b"x", interceptors=[Skip()]) == b"x"
            assert await echo(b"x", interceptors=[(Take(), 7)]) == b"mine"
            authorized = channel.unary_unary("/penstock.Probe/Authorized")
            assert await authorized(b"y", interceptors=[Again()]) == b"y"

    run(work())


EVENTS = ["create", "on_start", "on_send", "on_half_close", "on_headers", "on_receive", "on_status"]


@pytest.mark.parametrize("event", EVENTS)
def test_an_exception_ends_the_call_and_is_the_cause(server: str, run: Runner, event: str) -> None:
    async def broken(hop: Hop) -> None:
        await turn()
        raise LookupError(event)

    told: List[Any] = []

    async def work() -> None:
        interceptor = Interceptor()
        setattr(interceptor, event, broken)
        interceptor.name = "broken"
        async with opened(server) as channel:
            call = channel.unary_unary("/penstock.Echo/Unary")(b"x", interceptors=[interceptor])
            error = await raises(RpcError, call)
            assert error.code() is StatusCode.INTERNAL
            assert "interceptor 'broken'" in error.details()
            assert "LookupError" in error.details()
            assert isinstance(error.__cause__, LookupError)
            assert error.__cause__.__traceback__ is not None
            assert await channel.unary_unary("/penstock.Echo/Unary")(b"x") == b"x"

    penstock.set_exception_hook(lambda *words: told.append(words))
    try:
        run(work())
    finally:
        penstock.set_exception_hook(None)
    assert [words[0] for words in told] == ["broken"]


def test_the_end_of_a_call_cancels_what_it_waits_for(server: str, run: Runner) -> None:
    class Stuck(Interceptor):
        def __init__(self) -> None:
            self.ends: List[Any] = []
            self.started = asyncio.Event()

        async def on_start(self, hop: Hop) -> None:
            self.started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.ends.append("cancelled")
                raise

        async def on_status(self, hop: Hop) -> None:
            await turn()
            self.ends.append(hop.status.code)
            with pytest.raises(penstock.StateError):
                hop.count = 1

    async def work() -> None:
        stuck = Stuck()
        async with opened(server) as channel:
            echo = channel.unary_unary("/penstock.Echo/Unary")
            assert (await raises(RpcError, echo(b"x", timeout=0.02, interceptors=[stuck]))).code() is (
                StatusCode.DEADLINE_EXCEEDED
            )
            await eventually(lambda: len(stuck.ends) == 2)
            assert set(stuck.ends) == {"cancelled", StatusCode.DEADLINE_EXCEEDED}
            stuck.ends.clear()
            stuck.started.clear()

            async def wait() -> None:
                await echo(b"x", interceptors=[stuck])

            task = asyncio.create_task(wait())
            await stuck.started.wait()
            task.cancel()
            await raises(asyncio.CancelledError, task)
            await eventually(lambda: len(stuck.ends) == 2)
            assert set(stuck.ends) == {"cancelled", StatusCode.CANCELLED}

    run(work())


def test_signals_and_connections_are_told_of(server: str, run: Runner) -> None:
    class Signals(Interceptor):
        def __init__(self) -> None:
            self.seen: Dict[str, Any] = {}

        async def on_demand(self, hop: Hop) -> None:
            await turn()
            self.seen["demand"] = hop.count

        async def on_sent(self, hop: Hop) -> None:
            await turn()
            self.seen["sent"] = hop.count

        async def on_cancel(self, hop: Hop) -> None:
            await turn()
            self.seen["cancel"] = hop.status.code

        async def on_connection(self, event: penstock.ConnectionEvent) -> None:
            await turn()
            self.seen["connection"] = event.kind

    class End(Interceptor):
        def on_receive(self, hop: Hop) -> None:
            hop.end(StatusCode.ABORTED, "enough")

    async def work() -> None:
        signals = Signals()
        async with opened(server, interceptors=[(signals, 1), (End(), 10)]) as channel:
            error = await raises(RpcError, channel.unary_unary("/penstock.Echo/Unary")(b"x"))
            assert error.code() is StatusCode.ABORTED
            await eventually(lambda: len(signals.seen) == 4)
            assert signals.seen["demand"] >= 1
            assert signals.seen["sent"] == 1
            assert signals.seen["cancel"] is StatusCode.ABORTED

    run(work())


def test_side_calls_of_a_coroutine(server: str, run: Runner) -> None:
    class Token(Interceptor):
        async def on_start(self, hop: Hop) -> None:
            side: Any = hop.side_channel()
            hop.metadata["x-token"] = (await side.unary_unary("/penstock.Echo/Unary")(b"secret", timeout=20)).decode()

    async def work() -> None:
        async with opened(server) as channel:
            channel.add_interceptor(Token(), methods="/penstock.Probe/*")
            view = await channel.unary_unary("/penstock.Probe/Unary", json_bytes, json.loads)({})
            assert ["x-token", "secret"] in view["metadata"]

    run(work())


def test_objects_at_the_object_level(server: str, run: Runner) -> None:
    class Typed(Interceptor):
        level = penstock.Level.OBJECT

        async def on_send(self, hop: Hop) -> None:
            await turn()
            hop.message["seen"] = True

        async def on_receive(self, hop: Hop) -> None:
            await turn()
            assert isinstance(hop.message, dict)

    async def work() -> None:
        async with opened(server, interceptors=[Typed()]) as channel:
            echo = channel.unary_unary("/penstock.Echo/Unary", json_bytes, json.loads)
            assert await echo({"a": 1}) == {"a": 1, "seen": True}

    run(work())


def test_what_is_refused(server: str, run: Runner) -> None:
    class Pick(Interceptor):
        per_attempt = True

        async def on_pick(self, hop: Hop) -> None: ...  # type: ignore[override]

    class Elsewhere(Interceptor):
        executor = penstock.SerialExecutor()

        async def on_start(self, hop: Hop) -> None: ...

    class Start(Interceptor):
        async def on_start(self, hop: Hop) -> None: ...

    async def work() -> None:
        async with opened(server) as channel:
            with pytest.raises(TypeError, match="can't wait"):
                channel.add_interceptor(Pick())
            with pytest.raises(TypeError, match="no executors"):
                channel.add_interceptor(Elsewhere())

    run(work())
    with (
        penstock.Channel(server, tls=False) as blocking,
        pytest.raises(TypeError, match=r"only channels of penstock\.aio"),
    ):
        blocking.add_interceptor(Start())


def test_nothing_is_left_of_interceptors(server: str, run: Runner) -> None:
    assert soon(lambda: len(registry) + left() == 0)

    async def work() -> None:
        log: List[str] = []
        USER.set("ada")
        async with opened(server, interceptors=[Async(log)]) as channel:
            for _ in range(10):
                assert await channel.unary_unary("/penstock.Echo/Unary")(b"x") == b"x+-"
            hang: Callable[..., aio.UnaryCall] = channel.unary_unary("/penstock.Probe/Hang")
            call = hang(b"")
            await eventually(lambda: log[-1] == "half_close!")
            call.cancel()

    run(work())
    assert soon(lambda: len(registry) + left() == 0)
