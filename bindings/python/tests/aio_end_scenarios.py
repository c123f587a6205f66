"""Scenarios of streams whose end has come behind unread messages: see aio_scenarios.py."""

from __future__ import annotations

import asyncio
from typing import Any, Awaitable, Dict, List

from aio_helpers import eventually, turn
from aio_scenarios import STREAM, UNARY, everything, outcome, pairs, scenario
from conftest import json_bytes


async def streaming(channel: Any, wish: Dict[str, Any], **options: Any) -> Any:
    """A call of which one message has been read, and all other messages and the status have come."""
    call = channel.unary_stream(STREAM, json_bytes)(wish, **options)
    await call.read()
    await channel.unary_unary(UNARY)(b"")
    return call


@scenario
async def what_waits_for_the_end_waits_for_the_reader(channel: Any) -> Any:
    seen = []
    for wish in ({"count": 3}, {"count": 3, "code": 9, "message": "enough"}):
        log: List[Any] = []
        call = await streaming(channel, wish)

        async def wait(work: Awaitable[Any], log: List[Any] = log) -> None:
            log.append(await work)

        waits = (call.code(), call.details(), call.trailing_metadata())
        tasks = [asyncio.ensure_future(wait(each)) for each in waits]
        call.add_done_callback(lambda ended, log=log: log.append(("callback", ended.done())))
        await channel.unary_unary(UNARY)(b"")
        log.append((call.done(), await call.read(), call.done()))
        await channel.unary_unary(UNARY)(b"")
        log.append((call.done(), await call.read()))
        await asyncio.gather(*tasks)
        seen.append((log, await outcome(call.read()), await everything(call)))
    return seen


@scenario
async def a_deadline_before_the_reader(channel: Any) -> Any:
    seen = []
    for wish in ({"count": 3}, {"count": 3, "code": 9, "message": "enough"}):
        log: List[Any] = []
        call = await streaming(channel, wish, timeout=1.5)
        call.add_done_callback(lambda ended, log=log: log.append(ended.done()))
        log += [await call.code(), call.done(), call.cancelled(), call.cancel()]
        log += pairs(await call.trailing_metadata())
        log += [(await outcome(call.read()))[:2] for _ in range(2)]
        seen.append(log)
    polled = await streaming(channel, {"count": 3}, timeout=1.5)
    await eventually(polled.done)
    return seen, await polled.code()


@scenario
async def a_close_before_the_reader(channel: Any) -> Any:
    call = await streaming(channel, {"count": 3})
    await channel.close()
    return call.done(), await outcome(call.read()), await everything(call)


@scenario
async def a_close_with_grace_before_the_reader(channel: Any) -> Any:
    call = await streaming(channel, {"count": 2})
    closing = asyncio.ensure_future(channel.close(30))
    for _ in range(10):
        await turn()
    seen = [closing.done(), await call.read(), await call.read()]
    await closing
    return seen, await everything(call)
