"""The event loops on which calls run. For asyncio it is the loop itself; for trio an object with the few methods of
such a loop that this package uses."""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import Any, AsyncGenerator, Awaitable, Callable, Coroutine, List, Protocol, Tuple


class Waiting(Protocol, Awaitable[None]):
    """An event that a task waits for, once: the part of a future that is used here."""

    def done(self) -> bool: ...
    def set_result(self, result: None, /) -> None: ...


class Task(Protocol):
    """The part of a task that is used here."""

    def cancel(self) -> Any: ...
    def done(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def add_done_callback(self, function: Callable[[Any], object], /) -> None: ...


class Loop(Protocol):
    """The part of an event loop of asyncio that is used here."""

    def create_future(self) -> Any: ...
    def create_task(self, work: Coroutine[Any, Any, None], /) -> Any: ...
    def call_soon(self, function: Callable[..., object], /, *arguments: Any) -> Any: ...
    def call_soon_threadsafe(self, function: Callable[..., object], /, *arguments: Any) -> Any: ...
    def add_reader(self, descriptor: int, function: Callable[[], object], /) -> Any: ...
    def remove_reader(self, descriptor: int, /) -> Any: ...
    def is_closed(self) -> bool: ...


def running_loop() -> Any:
    """The loop that runs the calling task. RuntimeError: there is none."""
    if "trio" in sys.modules:
        # In trio's guest mode asyncio runs, too; then the task decides.
        loop = importlib.import_module("penstock._aio.trio_loop").running_loop()
        if loop is not None:
            return loop
    return asyncio.get_running_loop()


async def close(loop: Loop, iterator: Any) -> None:
    """Ends an iterator that nobody reads any more, where the loop does not end an async generator that is dropped."""
    if isinstance(iterator, AsyncGenerator) and not isinstance(loop, asyncio.AbstractEventLoop):
        await iterator.aclose()


def cancellations() -> Tuple[Any, ...]:
    """The exceptions by which a task is cancelled."""
    found: List[Any] = [asyncio.CancelledError]
    if "trio" in sys.modules:
        found.append(sys.modules["trio"].Cancelled)
    return tuple(found)
