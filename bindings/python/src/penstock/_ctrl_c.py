"""Exceptions of signal handlers, Ctrl-C above all, that come while C calls Python: nobody there could catch them."""

from __future__ import annotations

import sys
import threading
from types import CodeType
from typing import Any, Callable, Dict

# By thread: an exception that goes on in the Python code that waits there.
_escaping: Dict[int, BaseException] = {}
# What is called in place of a function that C has called and that has not run: with its arguments, by name, and the
# exception. By the function's code.
recoveries: Dict[CodeType, Callable[[Dict[str, Any], BaseException], object]] = {}


def recover(function: Callable[..., Any], undo: Callable[[Dict[str, Any]], object]) -> None:
    """Where C calls ``function`` and it does not run, ``undo`` gets its arguments, by name, and the exception goes on
    in the code that waits."""

    def recovery(given: Dict[str, Any], error: BaseException) -> None:
        escape(error)
        undo(given)

    recoveries[function.__code__] = recovery


def escape(error: BaseException) -> None:
    """Has ``error`` raised in the Python code that waits on this thread."""
    _escaping[threading.get_ident()] = error


def raise_escaping() -> None:
    """After a function that may have run callbacks on this thread."""
    if _escaping:
        error = _escaping.pop(threading.get_ident(), None)
        if error is not None:
            raise error


def call(function: Callable[..., int], *arguments: Any) -> int:
    """Calls a C function that may run callbacks on this thread, and lets out what they let escape.

    Python runs its signal handlers on the main thread as soon as a Python function begins there: that may be one that
    C calls, before its first line. An exception of a handler (KeyboardInterrupt) is then seen by
    `sys.unraisablehook` alone, which is ours for as long as the main thread is in the library.
    """
    if threading.get_ident() != threading.main_thread().ident:
        result = function(*arguments)
    else:
        others = sys.unraisablehook

        def hook(unraisable: sys.UnraisableHookArgs) -> None:
            if not _recovered(unraisable):
                others(unraisable)

        sys.unraisablehook = hook
        try:
            result = function(*arguments)
        finally:
            if sys.unraisablehook is hook:
                sys.unraisablehook = others
    raise_escaping()
    return result


def _recovered(unraisable: sys.UnraisableHookArgs) -> bool:
    """Whether this came out of a function that C has called, and was made up for."""
    trace, error = unraisable.exc_traceback, unraisable.exc_value
    if trace is None or error is None:
        return False
    recovery = recoveries.get(trace.tb_frame.f_code)
    if recovery is None:
        return False
    recovery(trace.tb_frame.f_locals, error)
    return True
