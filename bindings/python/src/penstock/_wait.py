"""Calls functions of the library that wait. Ctrl-C ends such a wait; a KeyboardInterrupt of a callback is raised."""

from __future__ import annotations

import threading
from typing import Any, Callable, List, Set

from . import _constants as c
from ._ctrl_c import call

# The library's worker threads that run the function of a synchronous interceptor. They never drive a loop.
workers: Set[int] = set()


class Waiters:
    """Counts the threads that are in a blocking call on one runtime. While there is one, it drives the loop, so the
    runtime's own Python thread need not.

    A context manager: a thread counts within it, which may span several C functions. Any thread may use it, because
    each step is one list operation. Workers of the library are not counted: they wait for another thread to drive the
    loop.
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
            # Perhaps empty: in the child of a fork that a signal handler has made, in here.
            del self._inside[-1:]

    def forget(self) -> None:
        """In the child of a fork, which has none of the threads."""
        self._inside.clear()

    def wait(self, function: Callable[..., Any], *arguments: Any) -> int:
        """Calls ``function`` again until no signal has interrupted it, and returns its result. Between two calls
        Python's signal handlers run; their exceptions are raised here.
        """
        with self:
            while True:
                result = call(function, *arguments)
                if result != c.E_INTERRUPTED:
                    return result
