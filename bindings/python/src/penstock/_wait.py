"""Functions of the library that wait, called so that Ctrl-C works and callbacks' exceptions get out."""

from __future__ import annotations

import threading
from typing import Any, Callable, List, Set

from . import _constants as c
from ._ctrl_c import call

# The threads that are in the function of a synchronous interceptor. The library's: they turn no loop of ours.
workers: Set[int] = set()


class Waiters:
    """The threads that are in a blocking call on one runtime. They turn its loop, so nobody else needs to.

    A context manager, for calls that are made of several steps. Any thread: each step is one list operation.
    Workers of the library do not count: they wait for others to turn the loop.
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
        """Calls ``function`` until it is not interrupted, and returns its result.

        Between two tries Python's own signal handlers run: what they raise comes out of here.
        """
        with self:
            while True:
                result = call(function, *arguments)
                if result != c.E_INTERRUPTED:
                    return result
