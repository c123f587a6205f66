"""Verifiers: the program's own check of servers' certificates."""

from __future__ import annotations

import threading
from contextvars import copy_context
from ctypes import byref, c_size_t, string_at
from typing import Any, Callable, Dict, List, Optional, Union

from .. import _raw
from .._handles.arguments import c_string
from .._handles.context import Scoped, run
from .._handles.ctrl_c import recover
from .._handles.errors import StateError, check
from .._handles.objects import Objects, forget, registry
from .._handles.reports import report, tell
from .._interceptors.request import text_of
from .._raw import constants as c


class Verification:
    """A server whose certificates are checked, and that all other checks accept. It may be used in the verifier only,
    on its thread."""

    __slots__ = ("_handle", "_thread")

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._thread = threading.get_ident()

    def _shown(self) -> int:
        if self._handle and self._thread == threading.get_ident():
            return self._handle
        raise StateError(c.E_STATE, "allowed only in the verifier, on its thread")

    @property
    def name(self) -> Optional[str]:
        """The name that is expected first: the target's host, or (the first) ``server_name``. None: there is none."""
        found = _raw.penstock_verification_name(self._shown())
        return None if found is None else text_of(found)

    @property
    def certificates(self) -> List[bytes]:
        """The chain as it was verified, from the server's own certificate to a root that is trusted; with ``verify``
        False, what the server has sent. Each in DER form, as ``cryptography.x509.load_der_x509_certificate`` reads
        it."""
        handle, found, length = self._shown(), [], c_size_t()
        for index in range(_raw.penstock_verification_count(handle)):
            data = _raw.penstock_verification_certificate(handle, index, byref(length))
            if data is None:
                raise MemoryError("no memory for a certificate")
            found.append(string_at(data, length.value))
        return found


# A verifier returns True if the server is accepted; a text that says why it is not; or False.
Verifier = Callable[[Verification], Union[bool, str]]


class _Function(Scoped):
    def __init__(self, verifier: Verifier, kept: Objects) -> None:
        super().__init__(copy_context(), kept)
        self.verifier = verifier


def set_verifier(channel: int, verifier: Verifier, kept: Objects) -> None:
    """Lets C call ``verifier``. C keeps it until the channel has closed."""
    if not callable(verifier):
        raise TypeError(f"a function that gets a Verification, not {verifier!r}")
    number = registry.add(_Function(verifier, kept))
    check(_raw.penstock_channel_set_verifier(channel, _verify, number, forget))


def _answer(handle: int, returned: object) -> None:
    if returned is True:
        check(_raw.penstock_verification_accept(handle))
    elif isinstance(returned, str):
        _refuse(handle, returned)
    elif returned is False:
        check(_raw.penstock_verification_refuse(handle, None))
    else:
        raise TypeError(f"the verifier returned {returned!r}, which is neither a bool nor a text")


def _refuse(handle: int, text: str) -> None:
    words = text.replace("\0", "").encode("utf-8", "replace").decode()
    _raw.penstock_verification_refuse(handle, c_string(words, "a message"))


def _call_verifier(handle: int, number: Optional[int]) -> None:
    """C calls this function to run a verifier. No exception reaches C; without an answer C refuses the server."""
    server = None
    try:
        function = registry.get(number)
        if isinstance(function, _Function):
            server = Verification(handle)
            try:
                _answer(handle, run(function.context, function.verifier, server))
            except BaseException as error:
                _refuse(handle, f"the verifier raised {type(error).__name__}")
                _refuse(handle, f"the verifier raised {type(error).__name__}: {error}")
                run(function.context, report, "verifier", "verifier", error)
    except BaseException as error:
        _refuse(handle, f"the verifier raised {type(error).__name__}")
        tell("verifier", "verifier", error)
    finally:
        if server is not None:
            server._handle = 0


def _interrupted(given: Dict[str, Any]) -> None:
    _raw.penstock_verification_refuse(given["handle"], b"the verifier was interrupted")


recover(_call_verifier, _interrupted, _interrupted)
_verify = _raw.penstock_verifier(_call_verifier)
