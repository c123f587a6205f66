"""Pickers: functions that choose the server of each attempt."""

from __future__ import annotations

import threading
from contextvars import copy_context
from typing import Any, Callable, Dict, List, Optional, Union

from .. import _raw
from .._handles.arguments import c_string
from .._handles.context import Scoped, of_pick, run
from .._handles.ctrl_c import recover
from .._handles.errors import StateError, check, library_error
from .._handles.metadata import Metadata
from .._handles.objects import Objects, forget, registry
from .._handles.reports import report
from .._handles.status import StatusCode, code_number
from .._interceptors.request import RequestFields, text_of
from .._raw import constants as c


class Endpoint:
    """A server that is ready, as a picker sees it. It may be used in the picker only."""

    __slots__ = ("_pick", "index")

    def __init__(self, pick: Pick, index: int) -> None:
        self._pick = pick
        self.index = index

    @property
    def address(self) -> str:
        """The server's address, such as ``192.0.2.1:443``, ``[::1]:443`` or ``unix:/path``."""
        return text_of(_raw.penstock_pick_address(self._pick._shown(), self.index))

    @property
    def weight(self) -> int:
        """The weight that the resolver has given; 1 if it has given none."""
        return int(_raw.penstock_pick_weight(self._pick._shown(), self.index))

    def attribute(self, name: str) -> Optional[str]:
        """The value of an attribute that the resolver has given; None: there is none."""
        text = c_string(name, "the name of an attribute")
        value = _raw.penstock_pick_attribute(self._pick._shown(), self.index, text)
        return None if value is None else text_of(value)

    def __repr__(self) -> str:
        return f"Endpoint({self.index})"


class Pick(RequestFields):
    """A call that needs a server, and the servers that are ready. The request can be read, but not changed
    (StateError). A `Pick` may be used in the picker only, on the picker's thread."""

    __slots__ = ("_failing", "_handle", "_thread")

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._thread = threading.get_ident()
        self._failing = False

    def _shown(self) -> int:
        if self._handle and self._thread == threading.get_ident():
            return self._handle
        raise StateError(c.E_STATE, "allowed only in the picker, on its thread")

    def _request(self) -> int:
        return int(_raw.penstock_pick_request(self._shown()))

    def _set(self, function: Callable[[int, Any], int], value: Any, words: str) -> None:
        self._shown()
        raise StateError(c.E_STATE, f"{words}: a picker can't change the request")

    def prefer(self, name: Optional[str], value: str = "", *, required: bool = False) -> None:
        """Always raises StateError, because a picker can't change the request."""
        raise StateError(c.E_STATE, "a picker can't change the request")

    @property
    def metadata(self) -> Metadata:
        """The request's metadata, read-only."""
        return self.request_metadata

    def __len__(self) -> int:
        """How many servers `endpoints` has."""
        return int(_raw.penstock_pick_count(self._shown()))

    @property
    def endpoints(self) -> List[Endpoint]:
        """The servers that are ready, except those that hops have refused or that the request rules out."""
        return [Endpoint(self, index) for index in range(len(self))]

    def fail(self, code: Union[StatusCode, int] = StatusCode.UNAVAILABLE, message: str = "") -> int:
        """Ends the call with this status: ``return pick.fail(StatusCode.ABORTED, "why")``."""
        text = c_string(message, "a message")
        result = _raw.penstock_pick_fail(self._shown(), code_number(code), text)
        if result != c.OK:
            raise library_error(result, f"a picker can't fail a call with {code!r}")
        self._failing = True
        return int(c.PICK_FAIL)


# A picker returns the endpoint, or its index; None, so that the call waits until the endpoints change; or the result
# of `Pick.fail`.
Picker = Callable[[Pick], Union[Endpoint, int, None]]


class _Function(Scoped):
    def __init__(self, picker: Picker, kept: Objects) -> None:
        super().__init__(copy_context(), kept)
        self.picker = picker


def set_picker(channel: int, picker: Optional[Picker], kept: Objects) -> None:
    """Lets C call ``picker``. C keeps it until the channel has another picker or has closed."""
    if picker is None:
        check(_raw.penstock_channel_set_picker(channel, _none, None, forget))
        return
    if not callable(picker):
        raise TypeError(f"a function that gets a Pick, not {picker!r}")
    check(_raw.penstock_channel_set_picker(channel, _pick, registry.add(_Function(picker, kept)), forget))


def _answer(pick: Pick, returned: object) -> int:
    if returned is None:
        return int(c.PICK_WAIT)
    if isinstance(returned, Endpoint):
        return returned.index
    if isinstance(returned, int) and not isinstance(returned, bool):
        if returned == c.PICK_FAIL and pick._failing:
            return int(c.PICK_FAIL)
        # C would take -1 and -2 for WAIT and FAIL, so a negative number becomes an index that does not exist. C then
        # ends the call with INTERNAL.
        return returned if 0 <= returned < 2**31 else 2**31 - 1
    raise TypeError(f"the picker returned {returned!r}, which is neither an Endpoint, an index nor None")


def _call_picker(handle: int, number: Optional[int]) -> int:
    """C calls this function to run a picker. No exception reaches C."""
    function = registry.get(number)
    if not isinstance(function, _Function):
        return int(c.PICK_FAIL)
    pick = Pick(handle)
    context = None
    try:
        context = of_pick(handle, function)
        return _answer(pick, run(context, function.picker, pick))
    except BaseException as error:
        text = f"the picker raised {type(error).__name__}"
        _raw.penstock_pick_fail(handle, StatusCode.INTERNAL.number, c_string(text, "a message"))
        run(context, report, "picker", "picker", error)
    finally:
        pick._handle = 0
    return int(c.PICK_FAIL)


def _not_begun(given: Dict[str, Any]) -> None:
    _raw.penstock_pick_fail(given["handle"], StatusCode.INTERNAL.number, b"the picker was interrupted")


recover(_call_picker, _not_begun)
_pick = _raw.penstock_picker(_call_picker)
_none = _raw.penstock_picker()
