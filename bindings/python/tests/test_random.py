"""Random calls with random interceptors on threads: each call ends once, in a way that its interceptors and its
caller allow, its interceptors see the events in their order, and nothing is left. test_aio_random.py has the same on
an event loop."""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional

import pytest

import penstock
from helpers import eventually
from penstock import (
    Channel,
    CompletionInterceptor,
    Hop,
    Interceptor,
    RpcError,
    Runtime,
    StatusCode,
    SyncInterceptor,
    Verdict,
)

SCENARIOS = 2000
THREADS = 8
EVENTS = ("on_start", "on_send", "on_half_close", "on_headers", "on_receive", "on_status")
RUNTIMES: Dict[str, Dict[str, Any]] = {
    "a thread of Python": {},
    "threads of the library": {"loops": 2},
}


class PlannedError(Exception):
    """The exception of a callback whose scenario says so."""


class World:
    """The parts that all scenarios share."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.lock = threading.Lock()
        # Resumes tickets and cancels calls.
        self.others = ThreadPoolExecutor(4)
        self.broken: List[str] = []

    def count(self, name: str) -> None:
        with self.lock:
            self.counts[name] += 1


class State:
    """The events of one hop so far."""

    def __init__(self) -> None:
        self.reached = {0: 0, 1: 0}
        self.held = {0: False, 1: False}
        self.is_over = False
        self.is_destroyed = False


class Chance(Interceptor):
    """Each of its callbacks passes, raises, drops, ends the call, or pauses until another thread goes on."""

    def __init__(self, chance: random.Random, world: World) -> None:
        self.world = world
        for event in EVENTS:
            if chance.random() < 0.5:
                actions = ["pass", "raise", "drop", "end", "pause", "pause and end"]
                action = chance.choices(actions, [70, 3, 4, 3, 17, 3])[0]
                setattr(self, event, self._callback(event, action))

    def create(self, hop: Hop) -> Any:
        self.world.count("created")
        return State()

    def destroy(self, hop: Hop) -> None:
        if hop.state.is_destroyed:
            self.world.broken.append("destroyed twice")
        hop.state.is_destroyed = True
        self.world.count("destroyed")

    def _check(self, event: str, hop: Hop) -> bool:
        """The events of a lane come in their order, none while an earlier one is paused, and none after the status
        has gone on: while it is paused, the other lane goes on. The status of a local cancel or of the deadline waits
        for nothing. Returns whether the event may be paused."""
        lane, place = divmod(EVENTS.index(event), 3)
        state = hop.state
        local = event == "on_status" and hop.status.code in (StatusCode.CANCELLED, StatusCode.DEADLINE_EXCEEDED)
        if state.is_destroyed or state.is_over:
            self.world.broken.append(f"{event} after the end")
        elif not local and (state.held[lane] or place < state.reached[lane]):
            self.world.broken.append(f"{event} too early")
        state.reached[lane] = place
        return not local

    def _callback(self, event: str, action: str) -> Any:
        lane = EVENTS.index(event) // 3

        def callback(hop: Hop) -> Optional[Verdict]:
            may_pause = self._check(event, hop)
            state = hop.state
            pauses = action.startswith("pause") and may_pause
            if event == "on_status" and not pauses:
                state.is_over = True
            if action == "raise":
                raise PlannedError(event)
            if action == "drop" and event in ("on_send", "on_receive"):
                return Verdict.DROP
            if action == "end" and event != "on_status":
                # A cancel, the deadline, or a ticket of the other lane may have been faster.
                with contextlib.suppress(penstock.GoneError, penstock.AlreadyError):
                    hop.end(StatusCode.ABORTED, "planned")
            if not pauses:
                return None
            ticket = hop.ticket()
            state.held[lane] = True

            def go_on() -> None:
                state.held[lane] = False
                # The call may have ended meanwhile.
                with contextlib.suppress(penstock.GoneError, penstock.AlreadyError):
                    if action == "pause and end":
                        ticket.end(StatusCode.ABORTED, "planned")
                    else:
                        ticket.resume()

            self.world.others.submit(go_on)
            return Verdict.PAUSE

        return callback


class Waits(SyncInterceptor):
    """A function that sees the whole call, and may raise before or after it."""

    def __init__(self, chance: random.Random, world: World) -> None:
        self.action = chance.choices(["next", "raise", "raise later", "end", "answer"], [70, 5, 10, 5, 10])[0]

    def intercept(self, call: Any) -> None:
        if self.action == "raise":
            raise PlannedError("intercept")
        ends = self.action == "end"
        if ends or (self.action == "answer" and call.kind is penstock.Kind.UNARY):
            # A cancel or the deadline may have been faster.
            with contextlib.suppress(penstock.GoneError):
                call.end(StatusCode.ABORTED, "planned") if ends else call.answer(b"planned")
            return
        call.next()
        if self.action == "raise later":
            raise PlannedError("intercept")


class Completes(CompletionInterceptor):
    """One of its callbacks completes at once or later, on another thread; or it raises, or ends the call."""

    def __init__(self, chance: random.Random, world: World) -> None:
        self.world = world
        self.action = chance.choices(["next", "later", "raise", "end"], [40, 50, 5, 5])[0]
        event = chance.choice(["on_send", "on_receive"])
        setattr(self, event, self._complete)

    def _complete(self, message: bytes, done: Any) -> None:
        if self.action == "raise":
            raise PlannedError("completion")
        if self.action == "later":
            self.world.others.submit(self._later, message, done)
            return
        # A cancel or the deadline may have been faster.
        with contextlib.suppress(penstock.GoneError):
            if self.action == "end":
                done.end(StatusCode.ABORTED, "planned")
            else:
                done.next(message)

    def _later(self, message: bytes, done: Any) -> None:
        with contextlib.suppress(penstock.GoneError):
            done.next(message)


class Executed(Interceptor):
    """Its callbacks run on the threads of an executor."""

    def __init__(self, chance: random.Random, world: World) -> None:
        self.executor = penstock.Executor(world.others.submit)
        self.fails = chance.random() < 0.1

    def on_send(self, hop: Hop) -> None: ...

    def on_receive(self, hop: Hop) -> None:
        if self.fails:
            raise PlannedError("on an executor")


class Scenario:
    """One call, which the calling thread makes and uses."""

    def __init__(self, channel: Channel, seed: int, world: World) -> None:
        self.chance = random.Random(seed)
        self.channel, self.world, self.seed = channel, world, seed
        kinds = [Chance, Chance, Chance, Waits, Completes, Executed]
        self.keywords: Dict[str, Any] = {
            "interceptors": [
                (self.chance.choice(kinds)(self.chance, world), place) for place in range(self.chance.randrange(4))
            ],
            "timeout": self.chance.choice([None, None, 0.002, 0.01]),
        }
        self.messages = [b"%d" % number for number in range(self.chance.randrange(1, 6))]
        self.ends: List[Any] = []

    def run(self) -> None:
        style = self.chance.choice(["blocking", "future", "server stream", "bidi", "upload", "written"])
        try:
            getattr(self, style.replace(" ", "_"))()
        except RpcError as error:
            self._check(error)
        self.world.count("ended")

    def _check(self, error: RpcError) -> None:
        allowed = {StatusCode.ABORTED, StatusCode.INTERNAL, StatusCode.CANCELLED, StatusCode.DEADLINE_EXCEEDED}
        # A dropped message may be missed by the server, or by this side.
        allowed |= {StatusCode.UNIMPLEMENTED}
        if error.code() not in allowed:
            self.world.broken.append(f"{self.seed}: {error!r}")
        if isinstance(error.__cause__, PlannedError):
            self.world.count("causes")
            # A cancel, the deadline, or the end that an interceptor above gives may have been faster.
            if error.code() is StatusCode.UNIMPLEMENTED:
                self.world.broken.append(f"{self.seed}: an exception became {error!r}")

    def _ends_once(self, call: Any) -> None:
        call.add_done_callback(self.ends.append)
        if self.chance.random() < 0.25:
            self.world.others.submit(call.cancel, "planned")

    def _over(self, call: Any) -> None:
        code = call.code()
        eventually(lambda: len(self.ends) == 1)
        if self.ends != [call] or code is not call.code() or not call.done() or call.cancel():
            self.world.broken.append(f"{self.seed}: {call!r} has ended otherwise")

    def blocking(self) -> None:
        echo = self.channel.unary_unary("/penstock.Echo/Unary")
        scope = penstock.CancelScope()
        if self.chance.random() < 0.25:
            self.world.others.submit(scope.cancel)
        echo(self.messages[0], cancel_scope=scope, **self.keywords)

    def future(self) -> None:
        call = self.channel.unary_unary("/penstock.Echo/Unary").future(self.messages[0], **self.keywords)
        self._ends_once(call)
        limit = self.chance.choice([None, 60, 0.001])
        try:
            call.result(limit)
        except penstock.TimedOutError:
            self.world.count("timed out")
        except RpcError as error:
            self._check(error)
        self._over(call)

    def server_stream(self) -> None:
        method = self.channel.unary_stream("/penstock.Echo/ServerStream")
        self._read(method(self.messages[0], metadata={"x-repeat": "5"}, **self.keywords))

    def bidi(self) -> None:
        method = self.channel.stream_stream("/penstock.Echo/Bidi")
        given = self.messages if self.chance.random() < 0.5 else iter(self.messages)
        self._read(method(given, **self.keywords))

    def _read(self, call: Any) -> None:
        if self.chance.random() < 0.1:
            # The object is dropped with messages unread.
            with contextlib.suppress(StopIteration):
                next(call)
            return
        self._ends_once(call)
        self._read_to_the_end(call)

    def _read_to_the_end(self, call: Any) -> None:
        try:
            for _ in call:
                pass
        except RpcError as error:
            self._check(error)
        self._over(call)

    def upload(self) -> None:
        self.channel.stream_unary("/penstock.Echo/ClientStream")(iter(self.messages), **self.keywords)

    def written(self) -> None:
        call = self.channel.stream_stream("/penstock.Echo/Bidi")(**self.keywords)
        self._ends_once(call)
        for message in self.messages:
            if not call.write(message):
                break
        call.done_writing()
        self._read_to_the_end(call)


@pytest.mark.again
@pytest.mark.parametrize("driver", RUNTIMES)
def test_random_calls_on_threads(server: str, driver: str) -> None:
    seed = int(os.environ.get("PENSTOCK_SEED", random.randrange(2**32)))
    print(f"PENSTOCK_SEED={seed}")
    world = World()
    penstock.set_exception_hook(
        lambda name, callback, error: None if isinstance(error, PlannedError) else world.broken.append(repr(error))
    )
    try:
        with Runtime(**RUNTIMES[driver]) as runtime, Channel(server, tls=False, runtime=runtime) as channel:
            with ThreadPoolExecutor(THREADS) as callers:
                seeds = range(seed, seed + SCENARIOS)
                for _ in callers.map(lambda each: Scenario(channel, each, world).run(), seeds):
                    pass
            # The calls of dropped objects end, too.
            eventually(lambda: world.counts["created"] == world.counts["destroyed"])
    finally:
        penstock.set_exception_hook(None)
        world.others.shutdown()
    assert world.broken == []
    assert world.counts["ended"] == SCENARIOS
    assert world.counts["causes"] > 0
