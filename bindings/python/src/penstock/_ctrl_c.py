"""Recovers exceptions of signal handlers, Ctrl-C above all, that are raised while C calls Python, where no
Python code could catch them."""

from __future__ import annotations

import sys
import threading
from types import CodeType
from typing import Any, Callable, Dict, Optional

# The exceptions to be raised again in the Python code that waits, by thread.
_escaping: Dict[int, BaseException] = {}
# The recovery for a function that C has called and that let an exception out, by the function's code. It gets
# the function's local variables, by name, and the exception.
_Recovery = Callable[[Dict[str, Any], BaseException], object]
_unbegun: Dict[CodeType, _Recovery] = {}
_begun: Dict[CodeType, _Recovery] = {}


def recover(
    function: Callable[..., Any],
    unbegun: Callable[[Dict[str, Any]], object],
    begun: Optional[Callable[[Dict[str, Any]], object]] = None,
) -> None:
    """Makes up for what C has asked of ``function`` where a signal's handler has raised instead; the exception goes
    on in the code that waits. ``unbegun`` gets the arguments, by name, of a function that has not run at all, and
    ``begun`` the local variables of one that has run in part: what that one has given away or released already is
    not to be released again."""

    def recovery(undo: Callable[[Dict[str, Any]], object]) -> _Recovery:
        def run(given: Dict[str, Any], error: BaseException) -> None:
            escape(error)
            undo(given)

        return run

    recover_with(function, recovery(unbegun), recovery(begun or (lambda given: None)))


def recover_with(function: Callable[..., Any], unbegun: _Recovery, begun: _Recovery) -> None:
    """Like `recover`, with functions that also get the exception and handle it themselves."""
    _unbegun[function.__code__] = unbegun
    _begun[function.__code__] = begun


def escape(error: BaseException) -> None:
    """Makes the Python code that waits on this thread raise ``error``."""
    _escaping[threading.get_ident()] = error


def raise_escaping() -> None:
    """Raises an exception that a callback on this thread has left. Called after a C function that may have
    run callbacks."""
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
    """Whether the exception came out of a function that C has called, and was recovered."""
    trace, error = unraisable.exc_traceback, unraisable.exc_value
    if trace is None or error is None:
        return False
    code = trace.tb_frame.f_code
    # Python looks for signals when a function begins, which is the line of its `def`.
    has_begun = trace.tb_next is not None or trace.tb_lineno != code.co_firstlineno
    recovery = (_begun if has_begun else _unbegun).get(code)
    if recovery is None:
        return False
    recovery(trace.tb_frame.f_locals, error)
    return True
