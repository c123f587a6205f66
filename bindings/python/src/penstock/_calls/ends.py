"""The end of a running call, and the functions that it calls."""

from __future__ import annotations

import collections
import logging
import os
import queue
import threading
import weakref
from typing import Any, Callable, Deque, Optional, Protocol

from .. import _hooks
from .._handles import host

_logger = logging.getLogger("penstock")

Function = Callable[[], Any]


class Callbacks(Protocol):
    """Runs functions of the program one after the other, in the order in which they come, where they may wait, and
    may make calls: such a function holds up only those that come after it."""

    def expect(self) -> None:
        """Called before a function is added. May wait."""

    def add(self, function: Function) -> None:
        """Runs ``function`` soon. Any thread; does not wait."""


def callbacks() -> Callbacks:
    hub = host.hub()
    return ThreadCallbacks() if hub is None else GreenCallbacks(hub)


class GreenCallbacks:
    """Runs the functions in a greenlet, which ends when there are none."""

    def __init__(self, hub: host.Hub) -> None:
        self._hub = hub
        self._functions: Deque[Function] = collections.deque()
        self._runs = False

    def expect(self) -> None: ...

    def add(self, function: Function) -> None:
        self._functions.append(function)
        # On the thread of the hub, so that one greenlet at a time runs them.
        self._hub.post(self._start)

    def _start(self) -> None:
        if self._functions and not self._runs:
            self._runs = True
            self._hub.spawn(self._run)

    def _run(self) -> None:
        try:
            while self._functions:
                _call(self._functions.popleft())
        finally:
            self._runs = False
            # A greenlet that is ended while it writes to a log leaves functions behind.
            self._start()


class ThreadCallbacks:
    """Runs the functions on a daemon thread, which starts when the first is expected and ends with this object."""

    def __init__(self) -> None:
        self._functions: Optional[queue.SimpleQueue[Optional[Function]]] = None
        self._process = 0

    def expect(self) -> None:
        """Starts the thread, anew in a forked child."""
        if self._process == os.getpid():
            return
        with _starting:
            if self._process != os.getpid():
                functions: queue.SimpleQueue[Optional[Function]] = queue.SimpleQueue()
                weakref.finalize(self, functions.put, None).atexit = False
                # First, so that a signal handler or a destructor which comes here now starts no second thread.
                self._functions, self._process = functions, os.getpid()
                try:
                    threading.Thread(target=_run, args=(functions,), name="penstock callbacks", daemon=True).start()
                except BaseException:
                    self._process = 0
                    raise

    def add(self, function: Function) -> None:
        if self._functions is not None:
            self._functions.put(function)


# May be taken again by a signal handler or a destructor, which run in the middle of anything.
_starting = threading.RLock()


def _renew() -> None:
    """Called in a forked child, where the thread that held the lock may not exist."""
    global _starting
    _starting = threading.RLock()


_hooks.in_child[__name__] = _renew


def _run(functions: queue.SimpleQueue[Optional[Function]]) -> None:
    while True:
        function = functions.get()
        if function is None:
            return
        _call(function)
        # Otherwise the last function would be kept until the next one comes.
        del function


def _call(function: Function) -> None:
    try:
        function()
    except BaseException:
        # Also SystemExit: it is this function's own, and there are other functions to run.
        _logger.exception("a callback of a call raised")


class Ends:
    """Whether a call has ended, and the functions to call then. Safe on any thread without a lock: each function is
    taken from the list once, by the thread that ends the call or by the one that has added it."""

    __slots__ = ("_callbacks", "_functions", "is_over")

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self._functions: Deque[Function] = collections.deque()
        self.is_over = False

    def over(self) -> None:
        """Called when the call has ended: lets the functions run. May be called twice."""
        self.is_over = True
        self._hand_over()

    def add(self, function: Function) -> None:
        """Lets ``function`` run when the call has ended, or soon if it has ended already."""
        self._callbacks.expect()
        self._functions.append(function)
        if self.is_over:
            self._hand_over()

    def _hand_over(self) -> None:
        while True:
            try:
                function = self._functions.popleft()
            except IndexError:
                return
            self._callbacks.add(function)
