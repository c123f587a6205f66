"""Cancel scopes, which cancel many calls at once."""

from __future__ import annotations

from ctypes import byref, c_void_p

from .. import _raw
from .._handles.arguments import c_string
from .._handles.errors import check
from .._handles.objects import Uncopied, own
from .._raw import constants as c


class CancelScope(Uncopied):
    """Cancels any number of calls at once, from any thread: all calls that were made with ``cancel_scope=`` this
    object, and all that will be.

        scope = penstock.CancelScope()
        threading.Timer(1, scope.cancel, ["too slow"]).start()
        stub.SayHello(request, cancel_scope=scope)
    """

    __slots__ = ("__weakref__", "_handle")

    def __init__(self) -> None:
        handle = c_void_p()
        check(_raw.penstock_cancel_scope_new(byref(handle)), "a cancel scope can't be made")
        assert handle.value is not None
        self._handle = own(self, _raw.penstock_cancel_scope_release, handle.value)

    def cancel(self, reason: str = "") -> bool:
        """Ends each call of the scope with CANCELLED and the reason, for good: a call that begins later sends
        nothing. Does not wait. False: the scope was cancelled before, and the first reason stays."""
        result = _raw.penstock_cancel_scope_cancel(self._handle, c_string(reason, "a reason"))
        if result == c.E_ALREADY:
            return False
        check(result, "the calls can't be cancelled")
        return True

    def __repr__(self) -> str:
        return f"<penstock.CancelScope {self._handle.value or 0:#x}>"
