"""Calls that are waited for in greenlets: the library carries them out in callback style, and the hub goes on while
they are waited for."""

from __future__ import annotations

import itertools
from collections import deque
from ctypes import byref, c_void_p, sizeof
from typing import Any, Callable, Deque, Dict, Optional, TypeVar

from .. import _raw
from .._handles.ctrl_c import escape, recover
from .._handles.errors import check, check_with
from .._handles.host import Gate, Hub
from .._handles.metadata import ReceivedMetadata
from .._handles.verdict import Kind
from .._raw import constants as c
from .ahead import Ahead
from .messages import Data, Sent, taken
from .steps import half_close, sent, tried

T = TypeVar("T")

_ONE_REQUEST = (Kind.UNARY, Kind.SERVER_STREAM)
# The calls that have not ended, by the numbers by which C knows them.
_carried: Dict[int, Carried] = {}
_numbers = itertools.count(1)


class Carried:
    """The parts of an answer that have come. C's callbacks change it on the thread that drives; each step is one
    operation of a list or a dictionary, so no lock is needed."""

    __slots__ = ("ahead", "gates", "headers", "hub", "is_cancelled", "is_over", "kind")

    def __init__(self, hub: Hub, kind: Kind) -> None:
        self.hub = hub
        self.kind = kind
        self.ahead = Ahead()
        # A copy of the response headers.
        self.headers: Optional[ReceivedMetadata] = None
        self.is_cancelled = False
        self.is_over = False
        # Of the code that waits for something new.
        self.gates: Deque[Gate] = deque()

    def news(self) -> None:
        for gate in tuple(self.gates):
            gate.open()

    def until(self, ready: Callable[[], Optional[T]], broken_off: Optional[Callable[[], object]] = None) -> T:
        """Waits until ``ready`` gives something, and returns it. If an exception ends the wait, calls
        ``broken_off``."""
        while True:
            found = ready()
            if found is not None:
                return found
            self.hub.check()
            gate = self.hub.gate()
            self.gates.append(gate)
            try:
                # A change after this line opens the gate.
                found = ready()
                if found is not None:
                    return found
                self._wait(gate, broken_off)
            finally:
                self.gates.remove(gate)

    def _wait(self, gate: Gate, broken_off: Optional[Callable[[], object]]) -> None:
        try:
            gate.wait()
        except BaseException:
            if broken_off is not None:
                broken_off()
            raise


def begin(hub: Hub, kind: Kind, make: Callable[..., int], *arguments: Any) -> GreenLine:
    """Makes a call by the C function ``make(*arguments, callbacks, &call, &error)``. The caller releases its
    handle."""
    carried = Carried(hub, kind)
    number = next(_numbers)
    table = _Table.from_buffer_copy(_table)
    table.user_data = number
    _carried[number] = carried
    call, error = c_void_p(), c_void_p()
    result = make(*arguments, byref(table), byref(call), byref(error))
    if result != c.OK:
        del _carried[number]
        check_with(result, error)
    assert call.value is not None
    return GreenLine(call.value, carried)


class GreenLine:
    """See `Line`. An exception that ends a wait for a message, for room or in `finish`, such as a time-out or the
    greenlet's end, cancels the call."""

    __slots__ = ("_carried", "handle", "unread")

    def __init__(self, handle: int, carried: Carried) -> None:
        self.handle = handle
        self._carried = carried
        self.unread = carried.ahead.unread

    def with_handle(self, handle: int) -> GreenLine:
        return GreenLine(handle, self._carried)

    def send(self, data: Sent) -> bool:
        def ready() -> Optional[bool]:
            result, length = tried(self.handle, data)
            return None if result == c.E_WOULD_BLOCK else sent(result, length)

        return self._or_cancel(ready)

    def receive(self) -> Optional[Data]:
        carried = self._carried
        self._half_close()

        def ready() -> Optional[tuple[Optional[Data]]]:
            # In this order: the last message comes before the end.
            over = carried.is_over
            try:
                data = self.unread.popleft()
            except IndexError:
                if over:
                    return (None,)
                carried.ahead.ask(self.handle)
                return None
            if not over:
                carried.ahead.ask(self.handle)
            return (data,)

        return self._or_cancel(ready)[0]

    def headers(self, owner: object) -> Optional[ReceivedMetadata]:
        carried = self._carried
        self._half_close()
        carried.until(lambda: True if carried.is_over or carried.headers is not None else None)
        return carried.headers

    def status(self) -> int:
        self._half_close()
        return self._carried.until(self._reply)

    def finish(self) -> int:
        half_close(self.handle)
        return self._or_cancel(self._reply)

    def cancel(self, reason: bytes) -> None:
        self._carried.is_cancelled = True
        _raw.penstock_call_cancel(self.handle, reason)
        self.unread.clear()

    def _reply(self) -> Optional[int]:
        if not self._carried.is_over:
            return None
        reply = c_void_p()
        check(_raw.penstock_call_reply(self.handle, byref(reply)), "the call can't be waited for")
        return reply.value

    def _half_close(self) -> None:
        """The functions that wait for a response half-close a call with one request."""
        if self._carried.kind in _ONE_REQUEST and not self._carried.is_over:
            half_close(self.handle)

    def _or_cancel(self, ready: Callable[[], Optional[T]]) -> T:
        return self._carried.until(ready, self._broken_off)

    def _broken_off(self) -> None:
        self.cancel(b"the wait for the call was broken off")


def forget() -> None:
    """Called in a forked child in which the parent's handles do not work: lets the code go on that waits for them."""
    for carried in _carried.values():
        carried.is_over = True
        carried.news()
    _carried.clear()


# ---- Functions that C calls, on the thread that drives. No exception may pass from them to C. ----


def _on_headers(call: int, headers: int, number: Optional[int]) -> None:
    try:
        carried = _carried.get(number or 0)
        if carried is not None:
            carried.headers = ReceivedMetadata._of(headers, None, None)
            carried.news()
    except BaseException as error:
        escape(error)


def _on_message(call: int, message: int, number: Optional[int]) -> None:
    try:
        carried = _carried.get(number or 0)
        if carried is not None:
            data = taken(c_void_p(_raw.penstock_message_retain(message)))
            carried.ahead.came(data)
            if not carried.is_cancelled:
                carried.ahead.unread.append(data)
            carried.news()
    except BaseException as error:
        escape(error)


def _on_sent(call: int, count: int, number: Optional[int]) -> None:
    try:
        carried = _carried.get(number or 0)
        if carried is not None:
            carried.news()
    except BaseException as error:
        escape(error)


def _on_reply(call: int, reply: int, number: Optional[int]) -> None:
    try:
        carried = _carried.pop(number or 0, None)
        if carried is not None:
            carried.is_over = True
            carried.news()
    except BaseException as error:
        escape(error)


for _function in (_on_headers, _on_message, _on_sent):
    recover(_function, lambda given: None)
recover(_on_reply, lambda given: _on_reply(**given))
_Table = _raw.penstock_call_callbacks
_table = _Table(
    struct_size=sizeof(_Table),
    on_headers=_raw.penstock_call_event(_on_headers),
    on_message=_raw.penstock_call_event(_on_message),
    on_sent=_raw.penstock_call_sent(_on_sent),
    on_reply=_raw.penstock_call_event(_on_reply),
)
