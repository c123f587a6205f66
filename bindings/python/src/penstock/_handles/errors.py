"""The exceptions for failures of the library itself. The end of a call is an `RpcError`."""

from __future__ import annotations

import json
from ctypes import c_void_p
from typing import Any, Dict, Optional, Tuple, Type

from .. import _raw
from .._raw import constants as c


class Error(Exception):
    """The base of every exception of this package."""


class LibraryError(Error):
    """A function of the library failed. This is never the status of a server.

    Attributes: ``result``, the number (`PENSTOCK_E_...`); ``name``, its name; ``message``, what was wrong, in words;
    ``path``, the JSON path of a wrong option, or None.
    """

    def __init__(self, result: int, message: str = "", path: Optional[str] = None) -> None:
        self.result = result
        self.name = result_name(result)
        self.message = message
        self.path = path
        super().__init__(f"{message} ({self.name})" if message else self.name)

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self.result, self.message, self.path), self.__dict__


class InvalidArgumentError(LibraryError, ValueError):
    """An argument, an option or a metadata name or value that is not allowed."""


class AlreadyError(LibraryError):
    """The operation can be done once, and was done before: for example a ticket is spent, or a call half-closed."""


class GoneError(LibraryError):
    """The call, event or other thing that the object stands for has ended."""


class WouldBlockError(LibraryError):
    """There is no room or no demand now. The interceptor's `on_sent` reports new room, its `on_demand` new demand."""


class WouldDeadlockError(LibraryError):
    """A function that waits was called in a callback on the thread that drives the runtime."""


class BusyError(LibraryError):
    """Another thread drives the runtime, or a callback of the runtime polls it."""


class TimedOutError(LibraryError, TimeoutError):
    """The given time ran out (a call's deadline is an `RpcError` instead)."""


class ForkedError(LibraryError):
    """The object was made by the parent of this process: make a new one."""


class ClosedError(LibraryError, ValueError):
    """The channel or its runtime has been closed."""


class NotFoundError(LibraryError, LookupError):
    """There is nothing with the given name, index, key or id."""


class StateError(LibraryError):
    """The operation is not allowed at this point of the call, in this callback, or on this thread."""


class InterceptorWarning(UserWarning):
    """An interceptor has a method that is never called and whose name looks like a misspelt name of a callback."""


_CLASSES: Dict[int, Type[LibraryError]] = {
    c.E_INVALID_ARGUMENT: InvalidArgumentError,
    c.E_INVALID_JSON: InvalidArgumentError,
    c.E_ALREADY: AlreadyError,
    c.E_GONE: GoneError,
    c.E_WOULD_BLOCK: WouldBlockError,
    c.E_WOULD_DEADLOCK: WouldDeadlockError,
    c.E_BUSY: BusyError,
    c.E_TIMEOUT: TimedOutError,
    c.E_FORKED: ForkedError,
    c.E_CLOSED: ClosedError,
    c.E_NOT_FOUND: NotFoundError,
    c.E_STATE: StateError,
}


def result_name(result: int) -> str:
    """The name of a result, such as ``"PENSTOCK_E_BUSY"``."""
    name: bytes = _raw.penstock_result_name(result)
    return name.decode()


def library_error(result: int, message: str = "", path: Optional[str] = None) -> LibraryError:
    """Makes the exception for ``result``, of the class that `_CLASSES` has for it."""
    return _CLASSES.get(result, LibraryError)(result, message, path)


def check(result: int, message: str = "") -> None:
    """Raises the exception for ``result`` unless it is OK."""
    if result != c.OK:
        raise library_error(result, message)


def check_hop(handle: int, result: int, message: str) -> None:
    """Raises the exception for ``result``, from a function of the hop ``handle``, unless it is OK. The text of a
    StateError has the reason that penstock_hop_why gives."""
    if result == c.OK:
        return
    why: bytes = _raw.penstock_hop_why(handle) if result == c.E_STATE else b""
    raise library_error(result, f"{message}: {why.decode()}" if why else message)


def check_with(result: int, error: c_void_p) -> None:
    """Raises the exception for ``result``, with the details of the ``penstock_error *``, unless it is OK. Releases
    the error."""
    if result == c.OK:
        return
    if not error.value:
        raise library_error(result)
    try:
        message: bytes = _raw.penstock_error_message(error)
        view: bytes = _raw.penstock_error_json(error)
    finally:
        # The handle is set to null first, so that a Ctrl-C during the release does not lead to a second release.
        handle, error.value = error.value, None
        _raw.penstock_error_release(handle)
    path = json.loads(view).get("path")
    raise library_error(result, message.decode("utf-8", "replace"), path)
