"""Calls in callback style: the library carries them out, and tells this package what comes of them."""

from __future__ import annotations

import itertools
from ctypes import byref, c_void_p, sizeof
from typing import Any, Callable, Dict, Optional

from .. import _raw
from .._handles.ctrl_c import escape, recover
from .._handles.errors import check_with
from .._handles.metadata import ReceivedMetadata
from .._raw import constants as c
from .ahead import Ahead
from .messages import taken

Table = _raw.penstock_call_callbacks
# The calls that have not ended, by the numbers by which C knows them.
calls: Dict[int, Carried] = {}
_numbers = itertools.count(1)


def left() -> int:
    """How many calls have not ended."""
    return len(calls)


class Carried:
    """A call from its beginning to its end. The callbacks of C change it, on the thread that drives. A subclass wakes
    the code that waits for it."""

    __slots__ = ("ahead", "headers", "is_cancelled", "unread")

    def __init__(self, ahead: Ahead) -> None:
        self.ahead = ahead
        # Messages that have come and that the program has not read.
        self.unread = ahead.unread
        # A copy of the response headers, if they have come before the end.
        self.headers: Optional[ReceivedMetadata] = None
        # Whether this side has cancelled the call, and discards the messages that still come.
        self.is_cancelled = False

    def news(self) -> None:
        """Called when headers or a message have come."""
        raise NotImplementedError

    def readable(self) -> None:
        """Called when a message waits in the call, in place of `news`, in a call with the callback `READABLE`."""
        raise NotImplementedError

    def room(self) -> None:
        """Called when there is room for a message."""
        raise NotImplementedError

    def over(self, reply: int) -> None:
        """Called when the call has ended, with its ``penstock_reply *``, which is lent. If an exception of a signal
        handler ends it, it is called once more."""
        raise NotImplementedError


class Out:
    """Where C leaves a call that it makes, or an error."""

    __slots__ = ("call", "call_out", "error", "error_out")

    def __init__(self) -> None:
        self.call, self.error = c_void_p(), c_void_p()
        self.call_out, self.error_out = byref(self.call), byref(self.error)


def carry(carried: Carried, callbacks: Table, out: Out, make: Callable[..., int], *arguments: Any) -> int:
    """Makes the call by the C function ``make(*arguments, callbacks, &call, &error)``. Returns the
    ``penstock_call *``, which the caller releases."""
    number = next(_numbers)
    table = Table.from_buffer_copy(callbacks)
    table.user_data = number
    calls[number] = carried
    result = make(*arguments, byref(table), out.call_out, out.error_out)
    if result != c.OK:
        del calls[number]
        check_with(result, out.error)
    return out.call.value or 0


# ---- Functions that C calls, on the thread that drives. No exception may pass from them to C. ----


def _on_headers(call: int, headers: int, number: Optional[int]) -> None:
    carried: Optional[Carried] = None
    try:
        carried = calls.get(number or 0)
        if carried is not None:
            carried.headers = ReceivedMetadata._of(headers, None, None)
            carried.news()
    except BaseException as error:
        escape(error)


def _on_message(call: int, message: int, number: Optional[int]) -> None:
    carried: Optional[Carried] = None
    try:
        carried = calls.get(number or 0)
        if carried is not None:
            data = taken(c_void_p(_raw.penstock_message_retain(message)))
            carried.ahead.came(data, is_kept=not carried.is_cancelled)
            carried.news()
    except BaseException as error:
        escape(error)


def _on_readable(call: int, number: Optional[int]) -> None:
    carried: Optional[Carried] = None
    try:
        carried = calls.get(number or 0)
        if carried is not None:
            carried.readable()
    except BaseException as error:
        escape(error)


def _on_sent(call: int, count: int, number: Optional[int]) -> None:
    carried: Optional[Carried] = None
    try:
        carried = calls.get(number or 0)
        if carried is not None:
            carried.room()
    except BaseException as error:
        escape(error)


def _on_reply(call: int, reply: int, number: Optional[int]) -> None:
    carried: Optional[Carried] = None
    try:
        carried = calls.get(number or 0)
        if carried is not None:
            carried.over(reply)
    except BaseException as error:
        escape(error)
        # A signal's exception may have ended it anywhere: it goes on where it was.
        carried = calls.get(number or 0)
        if carried is not None:
            carried.over(reply)
    calls.pop(number or 0, None)


recover(_on_headers, lambda given: _on_headers(**given))
recover(_on_message, lambda given: _on_message(**given))
recover(_on_readable, lambda given: _on_readable(**given))
recover(_on_sent, lambda given: _on_sent(**given))
recover(_on_reply, lambda given: _on_reply(**given))
# C may call these trampolines as long as the process lives, so the module keeps them.
HEADERS = _raw.penstock_call_event(_on_headers)
MESSAGE = _raw.penstock_call_event(_on_message)
READABLE = _raw.penstock_call_readable(_on_readable)
SENT = _raw.penstock_call_sent(_on_sent)
_REPLY = _raw.penstock_call_event(_on_reply)


def callbacks(**trampolines: Any) -> Table:
    """The callbacks ``on_reply`` and those given."""
    return Table(struct_size=sizeof(Table), on_reply=_REPLY, **trampolines)
