"""Reports exceptions that were raised by Python functions that C called."""

from __future__ import annotations

import functools
import logging
from contextvars import copy_context
from typing import Callable, Optional

from . import host
from .ctrl_c import escape

_logger = logging.getLogger("penstock")

ExceptionHook = Callable[[str, str, BaseException], object]
_hook: Optional[ExceptionHook] = None


def set_exception_hook(hook: Optional[ExceptionHook]) -> None:
    """Sets the hook for exceptions in callbacks: ``hook(interceptor_name, callback_name, exception)`` is called for
    each exception, on the thread of the callback, or in a greenlet of the hub, and in its context. None restores the
    default: exceptions are logged to the logger ``"penstock"``."""
    global _hook
    _hook = hook


def report(name: str, callback: str, error: BaseException) -> None:
    """Reports an exception. An exception that is not an Exception, such as KeyboardInterrupt, is also raised in the
    Python code that waits on this thread."""
    if not isinstance(error, Exception):
        escape(error)
    tell(name, callback, error)


def tell(name: str, callback: str, error: BaseException) -> None:
    """Reports an exception to the hook or the logger only. For threads of the library, where no Python code waits
    that could raise the exception again. With a hub, in a greenlet: the locks of `logging` may be those of greenlets,
    for which neither callbacks nor threads of the library can wait."""
    hub = host.hub()
    if hub is None:
        _tell(name, callback, error)
    else:
        hub.spawn(functools.partial(copy_context().run, _tell, name, callback, error))


def _tell(name: str, callback: str, error: BaseException) -> None:
    try:
        if _hook is not None:
            _hook(name, callback, error)
        else:
            _logger.error("interceptor %r raised in %s", name, callback, exc_info=error)
    except Exception:
        _logger.exception("the exception hook raised")
