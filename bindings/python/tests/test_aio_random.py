"""Random calls with random interceptors on an event loop: each call ends once, in a way that its interceptors and its
caller allow, and nothing is left."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from typing import Any, Dict, List

import pytest

import penstock
from aio_helpers import LOOPS, each, eventually, opened, run_on, turn
from penstock import Hop, Interceptor, RpcError, StatusCode, Verdict, aio
from penstock._calls.carried import left
from penstock._handles.objects import registry
from test_leaks import soon

SCENARIOS = 2000
EVENTS = ("on_start", "on_send", "on_half_close", "on_headers", "on_receive", "on_status")
# The place of each event in its lane.
LANES = {
    "on_start": (0, 0),
    "on_send": (0, 1),
    "on_half_close": (0, 2),
    "on_headers": (1, 0),
    "on_receive": (1, 1),
    "on_status": (1, 2),
}


class PlannedError(Exception):
    """The exception of a callback whose scenario says so."""


class Chance(Interceptor):
    """Each of its callbacks waits, raises, drops or ends the call by chance; some are async, some are not."""

    def __init__(self, chance: random.Random, counts: Counter[str]) -> None:
        self.counts = counts
        for event in EVENTS:
            if chance.random() < 0.5:
                action = chance.choices(["pass", "raise", "drop", "end"], [90, 3, 4, 3])[0]
                turns = chance.choice([0, 1, 1, 10, 30])
                make = self._async if turns else self._sync
                setattr(self, event, make(event, action, turns))

    def create(self, hop: Hop) -> Any:
        self.counts["created"] += 1
        return {"busy": Counter(), "reached": {0: 0, 1: 0}}

    def destroy(self, hop: Hop) -> None:
        self.counts["destroyed"] += 1

    def _act(self, event: str, action: str, hop: Hop) -> Any:
        if action == "raise":
            raise PlannedError(event)
        if action == "drop" and event in ("on_send", "on_receive"):
            return Verdict.DROP
        if action == "end" and event != "on_status":
            hop.end(StatusCode.ABORTED, "planned")
        return None

    def _sync(self, event: str, action: str, turns: int) -> Any:
        def callback(hop: Hop) -> Any:
            if not overtakes(event, hop):
                self._enter(event, hop)
            return self._act(event, action, hop)

        return callback

    def _enter(self, event: str, hop: Hop) -> None:
        lane, place = LANES[event]
        assert hop.state["busy"][lane] == 0
        assert place >= hop.state["reached"][lane]
        hop.state["reached"][lane] = place

    def _async(self, event: str, action: str, turns: int) -> Any:
        lane = LANES[event][0]

        async def callback(hop: Hop) -> Any:
            in_turn = not overtakes(event, hop)
            if in_turn:
                self._enter(event, hop)
                hop.state["busy"][lane] += 1
            try:
                for _ in range(turns):
                    await turn()
                return self._act(event, action, hop)
            finally:
                if in_turn:
                    hop.state["busy"][lane] -= 1

        return callback


def overtakes(event: str, hop: Hop) -> bool:
    """Whether the event is the status of a local cancel or of the deadline, which does not wait for what waits in its
    lane."""
    return event == "on_status" and hop.status.code in (StatusCode.CANCELLED, StatusCode.DEADLINE_EXCEEDED)


async def scenario(channel: aio.Channel, chance: random.Random, counts: Counter[str]) -> None:
    interceptors = [(Chance(chance, counts), place) for place in range(chance.randrange(4))]
    timeout = chance.choice([None, None, 0.002, 0.01])
    keywords: Dict[str, Any] = {"interceptors": interceptors, "timeout": timeout}
    messages = [b"%d" % number for number in range(chance.randrange(1, 6))]
    kind = chance.choice(["Unary", "ServerStream", "ClientStream", "Bidi"])
    call: Any
    if kind == "Unary":
        call = channel.unary_unary("/penstock.Echo/Unary")(messages[0], **keywords)
    elif kind == "ServerStream":
        call = channel.unary_stream("/penstock.Echo/ServerStream")(
            messages[0], metadata={"x-repeat": "5"}, **keywords
        )
    elif kind == "ClientStream":
        call = channel.stream_unary("/penstock.Echo/ClientStream")(each(*messages), **keywords)
    else:
        call = channel.stream_stream("/penstock.Echo/Bidi")(each(*messages), **keywords)
    ends: List[Any] = []
    call.add_done_callback(lambda ended: ends.append(ended))

    async def use() -> None:
        if kind in ("Unary", "ClientStream"):
            await call
        else:
            async for _ in call:
                pass

    task = asyncio.ensure_future(use())
    if chance.random() < 0.2:
        for _ in range(chance.choice([1, 10, 40])):
            await turn()
        if chance.random() < 0.5:
            task.cancel()
        else:
            call.cancel()
    # Without a deadline a call ends all the same: no interceptor waits for ever.
    await asyncio.wait([task], timeout=60)
    assert task.done(), (kind, call.trace)
    code = await call.code()
    if not task.cancelled() and task.exception() is not None:
        error = task.exception()
        assert isinstance(error, RpcError), error
        assert error.code() is code
        if isinstance(error.__cause__, PlannedError):
            # A cancel, the deadline, or the end that an interceptor above gives may have been faster.
            assert code in (
                StatusCode.INTERNAL,
                StatusCode.ABORTED,
                StatusCode.CANCELLED,
                StatusCode.DEADLINE_EXCEEDED,
            )
    await turn()
    assert ends == [call]
    counts["ended"] += 1


@pytest.mark.again
@pytest.mark.parametrize("loop", sorted(LOOPS))
def test_random_calls(server: str, loop: str) -> None:
    seed = int(os.environ.get("PENSTOCK_SEED", random.randrange(2**32)))
    print(f"PENSTOCK_SEED={seed}")
    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    assert soon(lambda: len(registry) + left() == 0)

    async def work() -> None:
        before = asyncio.all_tasks()
        async with opened(server) as channel:
            for _ in range(SCENARIOS // 20):
                await asyncio.gather(*(scenario(channel, chance, counts) for _ in range(20)))
        # Callbacks for which nothing waits may still run.
        await eventually(lambda: asyncio.all_tasks() <= before)

    penstock.set_exception_hook(
        lambda name, callback, error: None if isinstance(error, PlannedError) else print(error)
    )
    try:
        run_on(LOOPS[loop], work(), limit=600)
    finally:
        penstock.set_exception_hook(None)
    assert counts["ended"] == SCENARIOS
    assert counts["created"] == counts["destroyed"]
    assert soon(lambda: len(registry) + left() == 0)
