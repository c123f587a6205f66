"""Recovers exceptions of signal handlers (mostly Ctrl-C) that are raised while C calls Python, where no Python code
could catch them."""

from __future__ import annotations

import os
import sys
import threading
from types import CodeType
from typing import Any, Callable, Dict, Optional

# The exceptions to be raised in waiting Python code, by the number that the kernel has for the thread that waits:
# gevent and eventlet replace threading.get_ident by a function that tells greenlets apart.
_escaping: Dict[int, BaseException] = {}
# The recovery for a function that C has called and that has raised. It gets the function's local variables, by name,
# and the exception.
_Recovery = Callable[[Dict[str, Any], BaseException], object]
_unbegun: Dict[CodeType, _Recovery] = {}
_begun: Dict[CodeType, _Recovery] = {}


def recover(
    function: Callable[..., Any],
    unbegun: Callable[[Dict[str, Any]], object],
    begun: Optional[Callable[[Dict[str, Any]], object]] = None,
) -> None:
    """Sets the recovery for the case that a signal handler raises in ``function``, which C has called. The exception
    is raised again in the Python code that waits on the thread. If ``function`` has not begun, ``unbegun`` is called
    with the arguments of ``function``, by name; if it has run in part, ``begun``, if given, is called with its local
    variables. ``begun`` must not release anything that ``function`` has already passed on or released.

    ``function`` must begin with a statement that calls nothing, and have ``try`` behind it. If it began with
    ``try``, Python 3.9 and 3.10 would run handlers only within it, so that the function itself would catch the
    exception; and a call in front of ``try`` would let an exception pass to C."""

    def recovery(undo: Callable[[Dict[str, Any]], object]) -> _Recovery:
        def run(given: Dict[str, Any], error: BaseException) -> None:
            escape(error)
            undo(given)

        return run

    recover_with(function, recovery(unbegun), recovery(begun or (lambda given: None)))


def recover_with(function: Callable[..., Any], unbegun: _Recovery, begun: _Recovery) -> None:
    """Sets the recovery for ``function``, as `recover` does; but the two functions also get the exception. It is
    raised again only if they pass it to `escape`."""
    _unbegun[function.__code__] = unbegun
    _begun[function.__code__] = begun


def escape(error: BaseException) -> None:
    """Makes the Python code that waits on this thread raise ``error``. Does nothing on a thread of the library, where
    no Python code waits."""
    if not is_of_the_library():
        _escaping[threading.get_native_id()] = error


def is_of_the_library() -> bool:
    """Whether the calling thread belongs to a loop of the library: Python has not started it, and it is named
    "penstock"."""
    if not threading.current_thread().name.startswith("Dummy-"):
        return False
    try:
        with open(f"/proc/self/task/{threading.get_native_id()}/comm", encoding="ascii") as name:
            return name.read() == "penstock\n"
    except OSError:
        return False


def has_escaped() -> bool:
    """Whether `escape` has stored an exception for the calling thread."""
    return threading.get_native_id() in _escaping


def raise_escaping() -> None:
    """Raises the exception that `escape` has stored for this thread, if there is one. Must be called after each C
    function that may have run callbacks."""
    if _escaping:
        error = _escaping.pop(threading.get_native_id(), None)
        if error is not None:
            raise error


def call(function: Callable[..., int], *arguments: Any) -> int:
    """Calls a C function that may run callbacks on this thread, and raises their escaped exceptions.

    Python runs its signal handlers on the main thread when a Python function begins there. If C has called that
    function, a handler's exception (KeyboardInterrupt) is raised before its first line, and only `sys.unraisablehook`
    sees the exception. So this package sets that hook while the main thread is in the library.
    """
    if threading.get_native_id() != os.getpid():
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
    """Runs the recovery of the function in which the exception was raised, if C has called that function and it has a
    recovery. Returns whether a recovery has run."""
    trace, error = unraisable.exc_traceback, unraisable.exc_value
    if trace is None or error is None:
        return False
    code = trace.tb_frame.f_code
    # Python runs signal handlers when a function begins; the traceback then names the line of its `def`. A handler
    # that is a Python function has an entry of its own behind it.
    has_begun = trace.tb_lineno != code.co_firstlineno
    recovery = (_begun if has_begun else _unbegun).get(code)
    if recovery is None:
        return False
    recovery(trace.tb_frame.f_locals, error)
    return True
