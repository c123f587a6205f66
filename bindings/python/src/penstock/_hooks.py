"""The functions of this package that Python calls in a forked child and at the end of the process.

Python calls such functions in the order in which they were registered; at the end of the process in reverse. Those of
this package are registered when `penstock` is imported, although the modules that have them are imported later: so
functions that a program registers after the import run in a child in which calls can be made, and at an end at which
they still can."""

from __future__ import annotations

import atexit

# The callbacks of calls that end with the process may log, so the end of `logging`, which its import registers,
# has to come after that of this package.
import logging  # noqa: F401
import os
import sys

# Without types from typing, whose import takes longer than this package's.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List

# The functions, by the names of their modules: a module that is loaded again replaces its function.
in_child: Dict[str, Callable[[], None]] = {}
at_exit: Dict[str, Callable[[], None]] = {}


def _run(functions: List[Callable[[], None]]) -> None:
    """Calls each function, also if another has raised: nobody waits here for an exception, so it is printed."""
    for function in functions:
        try:
            function()
        except BaseException:
            try:
                sys.excepthook(*sys.exc_info())
            except BaseException:
                sys.__excepthook__(*sys.exc_info())


def register() -> None:
    os.register_at_fork(after_in_child=lambda: _run(list(in_child.values())))
    atexit.register(lambda: _run(list(at_exit.values())))
