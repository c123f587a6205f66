"""What the tests of asyncio share."""

from __future__ import annotations

import asyncio
import time
from typing import Any, AsyncIterator, Awaitable, Callable, Coroutine, TypeVar

import uvloop

from penstock import aio

T = TypeVar("T")
Runner = Callable[[Coroutine[Any, Any, Any]], Any]

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def run_on(make: Callable[[], asyncio.AbstractEventLoop], work: Coroutine[Any, Any, T], limit: float = 60) -> T:
    """Runs ``work`` on a new event loop, as `asyncio.run` does; at most ``limit`` seconds."""
    loop = make()
    try:
        return loop.run_until_complete(asyncio.wait_for(work, limit))
    finally:
        loop.run_until_complete(_end_tasks())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _end_tasks() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def opened(target: str, **options: Any) -> aio.Channel:
    return aio.Channel(target, tls=False, **options)


async def eventually(holds: Callable[[], bool]) -> None:
    """Waits until ``holds()`` is true, for a minute at most."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


async def turn() -> None:
    """Lets the other tasks of the loop run once."""
    await asyncio.sleep(0)


async def hanging(channel: Any, count: int) -> None:
    """Waits until exactly ``count`` calls hang in the server (see `Hanging` in server.py)."""
    await channel.unary_unary("/penstock.Probe/AwaitHanging")(str(count).encode(), timeout=30)


async def each(*items: Any) -> AsyncIterator[Any]:
    for item in items:
        await turn()
        yield item


async def raises(kind: type[BaseException], work: Awaitable[Any]) -> Any:
    """The exception of ``kind`` that ``work`` raises."""
    try:
        await work
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")
