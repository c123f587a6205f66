"""Fork: a child takes over what its parent has made, or has to make its own."""

from __future__ import annotations

import sys
import time

from ._raw import library

# Python before 3.12 hangs in a child if a thread that is not Python's was about to make its thread state: a worker of
# the library that begins a callback. So many seconds after `prepare`, when none begins any more, it has made it.
_SETTLES = 0.0 if sys.version_info >= (3, 12) else 0.001

# Goes up in a child that has taken nothing over: what was made under another number is the parent's.
_number = 1


def process() -> int:
    """The number of the process whose handles this one uses: that of an ancestor, if it has taken them over."""
    return _number


def prepare() -> None:
    """Just before a fork: ctypes lets go of the GIL, so that other threads may come to an end of what they do."""
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
    library.renew_lock()
    function = library.known("penstock_fork_child")
    if function is not None:
        function()


def take_nothing_over() -> None:
    """In a child that the parent's handles do not work in."""
    global _number
    _number += 1
