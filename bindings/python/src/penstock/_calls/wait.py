"""Calls functions of the library that wait. Ctrl-C ends such a wait; if a callback raises KeyboardInterrupt, the wait
raises it."""

from __future__ import annotations

import threading
import weakref
from typing import Any, Callable, List, Set

from .._handles.ctrl_c import call
from .._raw import constants as c

# The library's worker threads that run the function of a synchronous interceptor. They never drive a loop.
workers: Set[int] = set()


def is_worker() -> bool:
    """Whether the calling thread is one of `workers`."""
    return threading.get_ident() in workers


class Waiters:
    """Counts the threads that are in a blocking call on one runtime. While a thread is in such a call, it drives the
    loop, so the runtime's own Python thread need not.

    As a context manager it counts a thread during the ``with`` block, in which several C functions may be called. Any
    thread may use it, because each step is one list operation. Workers of the library are not counted: they wait for
    another thread to drive the loop. A thread that runs the function of a synchronous interceptor within its wait is
    not counted meanwhile (`step_out`).
    """

    __slots__ = ("__weakref__", "_inside")

    def __init__(self) -> None:
        # The identifiers of the threads.
        self._inside: List[int] = []
        _all.append(weakref.ref(self, _all.remove))

    def __bool__(self) -> bool:
        return bool(self._inside)

    def __enter__(self) -> None:
        if not (workers and is_worker()):
            self._inside.append(threading.get_ident())

    def __exit__(self, *exception: object) -> None:
        if not (workers and is_worker()):
            self._take(threading.get_ident())

    def _take(self, thread: int) -> bool:
        """Counts ``thread`` once less. Returns whether it was counted: it is not if a signal handler has forked
        during the ``with`` block and this process is the child."""
        try:
            self._inside.remove(thread)
            return True
        except ValueError:
            return False

    def forget(self) -> None:
        """Called in a forked child, which has none of the counted threads."""
        self._inside.clear()

    def once(self, function: Callable[..., Any], *arguments: Any) -> int:
        """Calls ``function``, and returns its result. Exceptions of Python's signal handlers are raised here."""
        # Each call waits so, and a `with` statement would cost it two more functions.
        if workers and is_worker():
            return call(function, *arguments)
        thread = threading.get_ident()
        try:
            self._inside.append(thread)
            return call(function, *arguments)
        finally:
            self._take(thread)

    def wait(self, function: Callable[..., Any], *arguments: Any) -> int:
        """Calls ``function`` until no signal interrupts it, and returns its result. Between two calls Python's signal
        handlers run; their exceptions are raised here.
        """
        with self:
            while True:
                result = call(function, *arguments)
                if result != c.E_INTERRUPTED:
                    return result


_all: List[weakref.ReferenceType[Waiters]] = []


def step_out() -> List[Waiters]:
    """The calling thread leaves its wait, within which C has called a Python function that may take long: it drives
    no loop now. Returns what `step_in` needs; empty: it does not wait, so it is a thread of the library."""
    thread = threading.get_ident()
    left: List[Waiters] = []
    for reference in list(_all):
        waiters = reference()
        # A thread may be in two such blocks of one runtime.
        while waiters is not None and waiters._take(thread):
            left.append(waiters)
    return left


def step_in(waits: List[Waiters]) -> None:
    """The calling thread is in the waits again that `step_out` has returned."""
    for waiters in waits:
        waiters.__enter__()
