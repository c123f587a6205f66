"""Fork: a child uses the handles of its parent, or has to make its own."""

from __future__ import annotations

import sys
import time

from .._raw import library

# In seconds. Before Python 3.12, a child hangs if the parent forks while a thread that Python has not started makes
# its Python thread state, for example a worker of the library that begins a callback. After `prepare` no callback
# begins, and within this time such a thread has made its state.
_SETTLES = 0.0 if sys.version_info >= (3, 12) else 0.001

# Rises by one in a child in which the parent's handles do not work. An object that was made under another number
# belongs to the parent.
_number = 1


def process() -> int:
    """A number for the process that made the usable handles: this process, or an ancestor whose handles work here."""
    return _number


def prepare() -> None:
    """Called just before a fork. ctypes releases the GIL during the C function, so that other threads can finish
    their callbacks."""
    function = library.known("penstock_fork_prepare")
    if function is not None:
        function()
        if _SETTLES:
            time.sleep(_SETTLES)


def parent() -> None:
    function = library.known("penstock_fork_parent")
    if function is not None:
        function()


def child() -> None:
    function = library.known("penstock_fork_child")
    if function is not None:
        function()


def take_nothing_over() -> None:
    """Called in a child in which the parent's handles do not work."""
    global _number
    _number += 1
