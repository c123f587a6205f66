"""Calls that are waited for in greenlets: the library carries them out in callback style, and the hub goes on while
they are waited for."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Callable, Deque, Optional, Sequence, TypeVar

from .. import _raw
from .._handles.errors import TimedOutError
from .._handles.host import Gates
from .._handles.metadata import ReceivedMetadata
from .._handles.verdict import Kind
from .._raw import constants as c
from .ahead import Ahead
from .carried import HEADERS, MESSAGE, SENT, Carried, Out, callbacks, calls, carry
from .messages import Data, Sent
from .steps import half_close, replied, sent, tried

T = TypeVar("T")

# The one response of a call comes with its end.
_ONE_RESPONSE = callbacks(on_headers=HEADERS, on_sent=SENT)
_RESPONSES = callbacks(on_headers=HEADERS, on_message=MESSAGE, on_sent=SENT)


class GreenCall(Carried):
    """See `Carried`. Code on other threads may use it; each step is one operation of a list or a dictionary,
    so no lock is needed."""

    __slots__ = ("gates", "is_over")

    def __init__(self) -> None:
        super().__init__(Ahead())
        self.is_over = False
        # Of the code that waits for something new.
        self.gates = Gates()

    def news(self) -> None:
        self.gates.open()

    def room(self) -> None:
        self.news()

    def over(self, reply: int) -> None:
        self.is_over = True
        self.news()

    def until(self, ready: Callable[[], Optional[T]], broken_off: Callable[[], object] = lambda: None) -> T:
        """Waits until ``ready`` gives something, and returns it. If an exception ends the wait, calls
        ``broken_off``."""
        while True:
            found = self.gates.wait(ready, broken_off=broken_off)
            if found is not None:
                return found


def begin(kind: Kind, make: Callable[..., int], *arguments: Any) -> GreenLine:
    """Makes a call by the C function ``make(*arguments, callbacks, &call, &error)``. The caller releases its
    handle."""
    call = GreenCall()
    has_one_response = kind in (Kind.UNARY, Kind.CLIENT_STREAM)
    return GreenLine(carry(call, _ONE_RESPONSE if has_one_response else _RESPONSES, Out(), make, *arguments), call)


class GreenLine:
    """See `Line`. An exception that ends a wait for a message, for room or in `finish`, such as a time-out or the
    greenlet's end, cancels the call."""

    __slots__ = ("_carried", "handle", "kept")

    def __init__(self, handle: int, carried: GreenCall) -> None:
        self.handle = handle
        self._carried = carried
        # A reader that takes a message also has to ask for others.
        self.kept: Deque[Data] = deque()

    def with_handle(self, handle: int) -> GreenLine:
        return GreenLine(handle, self._carried)

    def send(self, data: Sent) -> bool:
        def ready() -> Optional[bool]:
            result, length = tried(self.handle, data)
            return None if result == c.E_WOULD_BLOCK else sent(result, length)

        return self._or_cancel(ready)

    def send_all(self, batch: Sequence[Sent]) -> bool:
        return all(self.send(data) for data in batch)

    def receive(self) -> Optional[Data]:
        carried = self._carried

        def ready() -> Optional[tuple[Optional[Data]]]:
            # In this order: the last message comes before the end.
            over = carried.is_over
            try:
                data = carried.unread.popleft()
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
        carried.until(lambda: True if carried.is_over or carried.headers is not None else None)
        return carried.headers

    def status(self, timeout: Optional[float] = None) -> int:
        if timeout is None:
            return self._carried.until(self._reply)
        until = time.monotonic() + timeout
        while True:
            # The gate opens also for headers and messages.
            left = max(until - time.monotonic(), 0)
            found = self._carried.gates.wait(self._reply, left)
            if found is not None:
                return found
            if left == 0:
                raise TimedOutError(c.E_TIMEOUT, "the call has not ended")

    def finish(self) -> int:
        half_close(self.handle)
        return self._or_cancel(self._reply)

    def cancel(self, reason: bytes) -> None:
        self._carried.is_cancelled = True
        _raw.penstock_call_cancel(self.handle, reason)
        self._carried.unread.clear()

    def _reply(self) -> Optional[int]:
        return replied(_raw.penstock_call_reply, self.handle) if self._carried.is_over else None

    def _or_cancel(self, ready: Callable[[], Optional[T]]) -> T:
        return self._carried.until(ready, self._broken_off)

    def _broken_off(self) -> None:
        self.cancel(b"the wait for the call was broken off")


def forget() -> None:
    """Called in a forked child in which the parent's handles do not work: lets the code go on that waits for them."""
    for number, call in tuple(calls.items()):
        if isinstance(call, GreenCall):
            del calls[number]
            call.over(0)
