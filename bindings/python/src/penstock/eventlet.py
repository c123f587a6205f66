"""Penstock with eventlet: calls wait in the hub, while other green threads run. There is no thread.

import penstock.eventlet
penstock.eventlet.init()
"""

from __future__ import annotations

import collections
import contextlib
import os
import weakref
from typing import Any, Deque, Optional

from ._calls.hubs import GreenHub, begin, this_thread
from ._channels.runtime import has_runtimes
from ._handles.host import Function, Gate

try:
    import eventlet.patcher
    import eventlet.tpool
    from eventlet import hubs
    from greenlet import getcurrent
except ImportError as error:
    raise ImportError(f"penstock.eventlet needs the package eventlet: {error}", name="eventlet") from error

__all__ = ["init"]

# The functions of the system: those that eventlet puts in their place wait in the hub.
_os = eventlet.patcher.original("os")
_allocate_lock = eventlet.patcher.original("_thread").allocate_lock


def init() -> None:
    """Lets every call of this process wait in eventlet's hub, and the hub of the calling thread drive the runtimes.
    To be called once, on the main thread, before the first channel is made; before or after
    ``eventlet.monkey_patch()``, or without it. Further times do nothing.

    RuntimeError: a channel or a runtime has been made before."""
    begin(_Hub, "eventlet", has_runtimes())


class _Line:
    """Lets a hub call functions that other threads give it."""

    def __init__(self, hub: Any) -> None:
        self._functions: Deque[Function] = collections.deque()
        self._end, self._begin = os.pipe()
        for descriptor in (self._end, self._begin):
            os.set_blocking(descriptor, False)
        self.close = weakref.finalize(hub, _close, self._end, self._begin)
        self.close.atexit = False
        listen(hub, self._end, self._run)

    def post(self, function: Function) -> None:
        self._functions.append(function)
        # A pipe that is full wakes the hub, too.
        with contextlib.suppress(BlockingIOError):
            _os.write(self._begin, b"x")

    def _run(self) -> None:
        with contextlib.suppress(BlockingIOError):
            _os.read(self._end, 4096)
        while self._functions:
            self._functions.popleft()()


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def listen(hub: Any, descriptor: int, function: Function) -> Function:
    listener = hub.add(hub.READ, descriptor, lambda _: function(), lambda *_: None, lambda: None)

    def stop() -> None:
        # Somebody may have closed the descriptor, for which the hub has forgotten it.
        with contextlib.suppress(KeyError):
            hub.remove(listener)

    return stop


class _Hub(GreenHub):
    def __init__(self) -> None:
        self._allocate_lock = _allocate_lock
        self._lines: weakref.WeakKeyDictionary[Any, _Line] = weakref.WeakKeyDictionary()
        super().__init__()

    def _own_hub(self, made: bool) -> Any:
        if not made and getattr(hubs._threadlocal, "hub", None) is None:
            return None
        hub = hubs.get_hub()
        if hub not in self._lines:
            self._lines[hub] = _Line(hub)
        return hub

    def leave(self) -> None:
        hub = hubs._threadlocal.__dict__.pop("hub", None)
        if hub is None:
            return
        # Nothing in eventlet closes it.
        poll = getattr(hub, "poll", None)
        if poll is not None:
            poll.close()
        line = self._lines.pop(hub, None)
        if line is not None:
            line.close()

    def _is_in(self, hub: Any) -> bool:
        return getcurrent() is hub.greenlet

    def _gate(self, hub: Any) -> Gate:
        return _Gate(hub, self._lines[hub])

    def _spawn(self, function: Function) -> None:
        eventlet.spawn_n(function)

    def run_apart(self, function: Function) -> None:
        eventlet.tpool.execute(function)

    def _call(self, hub: Any, function: Function, is_elsewhere: bool) -> None:
        if is_elsewhere:
            self._lines[hub].post(function)
        else:
            hub.schedule_call_global(0, function)

    def _listen(self, hub: Any, descriptor: int, function: Function) -> Function:
        return listen(hub, descriptor, function)


class _Gate:
    __slots__ = ("_hub", "_is_open", "_line", "_thread", "_waiting")

    def __init__(self, hub: Any, line: _Line) -> None:
        self._hub = hub
        self._line = line
        self._thread = this_thread()
        self._is_open = False
        self._waiting: Optional[Any] = None

    def open(self) -> None:
        was_open, self._is_open = self._is_open, True
        if was_open or self._waiting is None:
            return
        if self._thread == this_thread():
            self._hub.schedule_call_global(0, self._wake)
        else:
            self._line.post(self._wake)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.switch()

    def wait(self, timeout: Optional[float] = None) -> None:
        self._waiting = getcurrent()
        timer = None if timeout is None else self._hub.schedule_call_global(max(timeout, 0), self._wake)
        try:
            # Another thread may open the gate before this line, or wakes the hub after it.
            if not self._is_open:
                self._hub.switch()
        finally:
            self._waiting = None
            if timer is not None:
                timer.cancel()
