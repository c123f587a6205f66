"""Calls functions of the library that wait. Ctrl-C ends such a wait; if a callback raises KeyboardInterrupt, the wait
raises it."""

from __future__ import annotations

import threading
from typing import Any, Callable, List, Set

from .._handles.ctrl_c import call
from .._raw import constants as c

# The library's worker threads that run the function of a synchronous interceptor. They never drive a loop.
workers: Set[int] = set()


class Waiters:
    """Counts the threads that are in a blocking call on one runtime. While a thread is in such a call, it drives the
    loop, so the runtime's own Python thread need not.

    As a context manager it counts a thread during the ``with`` block, in which several C functions may be called. Any
    thread may use it, because each step is one list operation. Workers of the library are not counted: they wait for
    another thread to drive the loop.
    """

    __slots__ = ("_inside",)

    def __init__(self) -> None:
        self._inside: List[None] = []

    def __bool__(self) -> bool:
        return bool(self._inside)

    def __enter__(self) -> None:
        if not workers or threading.get_ident() not in workers:
            self._inside.append(None)

    def __exit__(self, *exception: object) -> None:
        if not workers or threading.get_ident() not in workers:
            # The list is empty if a signal handler has forked during the ``with`` block and this process is the
            # child.
            del self._inside[-1:]

    def forget(self) -> None:
        """Called in a forked child, which has none of the counted threads."""
        self._inside.clear()

    def once(self, function: Callable[..., Any], *arguments: Any) -> int:
        """Calls ``function``, and returns its result. Exceptions of Python's signal handlers are raised here."""
        with self:
            return call(function, *arguments)

    def wait(self, function: Callable[..., Any], *arguments: Any) -> int:
        """Calls ``function`` until no signal interrupts it, and returns its result. Between two calls Python's signal
        handlers run; their exceptions are raised here.
        """
        with self:
            while True:
                result = call(function, *arguments)
                if result != c.E_INTERRUPTED:
                    return result
