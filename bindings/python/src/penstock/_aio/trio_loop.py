"""trio as an event loop. Work besides the program's own tasks, such as the reading of requests, runs in trio's
system tasks."""

from __future__ import annotations

import contextlib
import logging
import weakref
from contextvars import copy_context
from typing import Any, Callable, Coroutine, Dict, Generator, List, Optional

import trio

_logger = logging.getLogger("penstock")


class _Future:
    """A future without a result, for one task."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = trio.Event()

    def done(self) -> bool:
        return self._event.is_set()

    def set_result(self, result: None) -> None:
        self._event.set()

    def __await__(self) -> Generator[Any, None, None]:
        return (yield from self._event.wait().__await__())


class _Task:
    """A system task that runs ``work``."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._scope = trio.CancelScope()
        self._functions: List[Callable[[Any], object]] = []
        self._is_over = False
        self._is_cancelled = False
        trio.lowlevel.spawn_system_task(self._run, work, context=copy_context())

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            with self._scope:
                try:
                    await work
                except trio.Cancelled:
                    self._is_cancelled = True
                    raise
                except Exception as error:
                    _logger.exception("a task raised", exc_info=error)
        finally:
            self._is_over = True
            for function in self._functions:
                function(self)

    def cancel(self) -> None:
        self._scope.cancel()

    def done(self) -> bool:
        return self._is_over

    def cancelled(self) -> bool:
        return self._is_cancelled

    def add_done_callback(self, function: Callable[[Any], object]) -> None:
        self._functions.append(function)


class TrioLoop:
    """See `loops.Loop`: one run of trio."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._readers: Dict[int, trio.CancelScope] = {}
        self._is_closed = False

    def create_future(self) -> _Future:
        return _Future()

    def create_task(self, work: Coroutine[Any, Any, None]) -> _Task:
        return _Task(work)

    def call_soon(self, function: Callable[..., object], *arguments: Any) -> None:
        within = copy_context()

        def run() -> None:
            try:
                within.run(function, *arguments)
            except Exception:
                _logger.exception("a callback of a call raised")

        # RunFinishedError, which is a RuntimeError: the run is over.
        self._token.run_sync_soon(run)

    call_soon_threadsafe = call_soon

    def add_reader(self, descriptor: int, function: Callable[[], object]) -> None:
        scope = self._readers[descriptor] = trio.CancelScope()
        # Only the task keeps the function, and lets it go at the end of the run.
        trio.lowlevel.spawn_system_task(_read, weakref.ref(self), descriptor, scope, function)

    def remove_reader(self, descriptor: int) -> None:
        scope = self._readers.pop(descriptor, None)
        if scope is not None:
            scope.cancel()

    def is_closed(self) -> bool:
        return self._is_closed


async def _read(
    loop: weakref.ref[TrioLoop], descriptor: int, scope: trio.CancelScope, function: Callable[[], object]
) -> None:
    """Calls ``function`` whenever the descriptor is readable."""
    try:
        with scope:
            while True:
                await trio.lowlevel.wait_readable(descriptor)
                try:
                    function()
                except Exception:
                    _logger.exception("a callback raised this in trio's run, where no code waits for it")
    finally:
        found = loop()
        if found is not None and not scope.cancel_called:
            found._is_closed = True


_loop: trio.lowlevel.RunVar[TrioLoop] = trio.lowlevel.RunVar("penstock")


def running_loop() -> Optional[TrioLoop]:
    """The run of the calling task; None: no task of trio is running."""
    with contextlib.suppress(RuntimeError):
        trio.lowlevel.current_task()
        try:
            return _loop.get()
        except LookupError:
            made = TrioLoop()
            _loop.set(made)
            return made
    return None
