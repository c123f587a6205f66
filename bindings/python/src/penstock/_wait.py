"""Calls functions of the library that wait, so that Ctrl-C works and the exceptions of callbacks are raised."""

from __future__ import annotations

import threading
from typing import Any, Callable, List, Set

from . import _constants as c
from ._ctrl_c import call

# The library's worker threads that run the function of a synchronous interceptor. They never drive a loop.
workers: Set[int] = set()


class Waiters:
    """The threads that are in a blocking call on one runtime. They drive its loop, so no other thread needs to.

    A context manager, for calls that are made of several steps. Any thread: each step is one list operation.
    Workers of the library do not count: they wait for another thread to drive the loop.
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
            self._inside.pop()

    def wait(self, function: Callable[..., Any], *arguments: Any) -> int:
        """Calls ``function`` until no signal interrupts it, and returns its result. Between two tries Python's
        signal handlers run; their exceptions are raised here.
        """
        with self:
            while True:
                result = call(function, *arguments)
                if result != c.E_INTERRUPTED:
                    return result
