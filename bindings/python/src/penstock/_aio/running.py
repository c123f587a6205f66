"""A call as the library carries it out, in callback style. The objects that programs have, `Call` and its subclasses,
refer to it."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from ctypes import byref, c_void_p, sizeof
from typing import Any, Callable, Deque, List, Optional

from .. import _raw
from .._calls.codec import fill
from .._calls.messages import Data, Sent, body, taken
from .._calls.steps import check_size
from .._handles.context import CallContext
from .._handles.ctrl_c import escape, recover
from .._handles.errors import check, check_with
from .._handles.metadata import ReceivedMetadata
from .._handles.objects import registry
from .._handles.reply import Reply, RpcError, reply_error
from .._handles.verdict import Kind
from .._raw import constants as c
from .driver import Group

# How many messages are asked for ahead of the program, and how many bytes they may have together. One message may
# always come.
_AHEAD_MESSAGES = 32
_AHEAD_BYTES = 262_144
_OK = 0


class Running:
    """A call from its beginning to its end. C knows it by its number in the registry, until the call has ended.

    All methods are for the thread of the event loop, except `cancel`.
    """

    __slots__ = (
        "__weakref__",
        "_ahead",
        "_driver",
        "_group",
        "_largest",
        "_raised",
        "_reply",
        "_reply_handle",
        "call",
        "code",
        "failure",
        "headers",
        "is_cancelled",
        "kind",
        "lent",
        "loop",
        "method",
        "on_end",
        "readers",
        "response",
        "unread",
        "writers",
    )

    def __init__(self, group: Group, method: str, kind: Kind) -> None:
        self._group = group
        self._driver = group.driver
        self.loop = group.loop
        self.method = method
        self.kind = kind
        # The call's context, which the program's `Call` has, see `CallContext`.
        self.lent: Optional[CallContext] = None
        # The ``penstock_call *``; 0 before the call is made and after it has ended.
        self.call = 0
        # The status code; -1: the call has not ended.
        self.code = -1
        self.is_cancelled = False
        # The end that this side has found, such as an exception of the iterator of requests.
        self.failure: Optional[RpcError] = None
        self._reply_handle: Optional[int] = None
        self._reply: Optional[Reply] = None
        # The exception of an `async def` callback.
        self._raised: Optional[BaseException] = None
        # The response headers, if they have come before the end.
        self.headers: Optional[ReceivedMetadata] = None
        # The response of a call that has one.
        self.response: Optional[Data] = None
        # Messages that the program has not read.
        self.unread: Deque[Data] = deque()
        # How many messages have been asked for and have not come, and the size of the largest message so far.
        self._ahead = 0
        self._largest = 0
        # The tasks that wait: for something from the server, and for room for a message.
        self.readers: List[asyncio.Future[None]] = []
        self.writers: List[asyncio.Future[None]] = []
        # The functions to be called at the end of the call, soon.
        self.on_end: List[Callable[[], object]] = []

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        handle = self._reply_handle
        if handle is not None and self._reply is None and not ends():
            _raw.penstock_reply_release(handle)

    # ---- The beginning ----

    def begin(self, make: Callable[[Any, Any, Any], int]) -> None:
        """Makes the call by ``make(callbacks, &call, &error)``, a C function with its first arguments bound."""
        self._driver.check()
        call, error = c_void_p(), c_void_p()
        number = registry.add(self)
        table = _tables[self.kind](number)
        result = make(byref(table), byref(call), byref(error))
        if result != c.OK:
            registry.remove(number)
            check_with(result, error)
        self.call = call.value or 0
        self._group.running.add(self)

    # ---- Sending ----

    def try_send(self, data: Sent) -> bool:
        """Sends a message if there is room. True: it is sent, or the call has ended. RpcError: it is over the
        limit."""
        if not self.call:
            return True
        if isinstance(data, bytes):
            length = len(data)
            result = _raw.penstock_call_try_send(self.call, data, length)
        else:
            message = c_void_p()
            try:
                length = fill(message, data)
                result = _raw.penstock_call_try_send_message(self.call, message)
            finally:
                _raw.penstock_message_release(message)
        if result == c.E_WOULD_BLOCK:
            return False
        if result not in (c.OK, c.E_GONE):
            check_size(result, length)
            check(result, "the message can't be sent")
        return True

    async def send(self, data: Sent) -> None:
        """Sends a message when there is room for it. Cancelling the wait cancels the call."""
        while not self.try_send(data):
            await self.wait(self.writers)

    def half_close(self) -> None:
        if self.call:
            result = _raw.penstock_call_half_close(self.call)
            if result not in (c.OK, c.E_GONE, c.E_ALREADY):
                check(result)

    # ---- Waiting ----

    async def wait(self, waiting: List[asyncio.Future[None]], cancels: bool = True) -> None:
        """Waits for the next event in ``waiting``, which is `readers` or `writers`. ``cancels``: cancelling the wait
        cancels the call."""
        self._driver.check()
        future = self.loop.create_future()
        waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if cancels:
                self.cancel("the task that waited for the call was cancelled")
            raise

    def wake(self, waiting: List[asyncio.Future[None]]) -> None:
        if waiting and self._driver.is_open:
            futures = waiting.copy()
            waiting.clear()
            for future in futures:
                if not future.done():
                    future.set_result(None)

    async def receive(self) -> Optional[Data]:
        """The next message; None: there are no more, and the call has ended."""
        while not self.unread:
            if self.code >= 0:
                return None
            self.ask()
            await self.wait(self.readers)
        data = self.unread.popleft()
        self.ask()
        return data

    def ask(self) -> None:
        """Asks for messages, so that the server is not held back as long as the program keeps up with it. Asks for
        fewer if they are large."""
        wanted = min(_AHEAD_MESSAGES, _AHEAD_BYTES // self._largest) if self._largest else 1
        has = self._ahead + len(self.unread)
        # Asks for several at once, because each demand crosses into the library.
        if has == 0 or has <= wanted // 2:
            self._ahead += max(wanted - has, 1)
            _raw.penstock_call_demand(self.call, max(wanted - has, 1))

    async def ended(self) -> None:
        """Waits for the end of the call. Cancelling this wait leaves the call as it is."""
        while self.code < 0:
            await self.wait(self.readers, cancels=False)

    # ---- The end ----

    def cancel(self, reason: str) -> bool:
        """Ends the call with CANCELLED. False: it had ended before."""
        if self.code >= 0:
            return False
        self.is_cancelled = True
        self.unread.clear()
        _raw.penstock_call_cancel(self.call, reason.encode())
        return True

    def fail(self, error: RpcError) -> None:
        """Ends the call because of ``error``, which its caller gets."""
        if self.code < 0 and self.failure is None:
            self.failure = error
            self.cancel(error.details())

    def reply(self) -> Reply:
        """The reply of a call that has ended."""
        if self._reply is None:
            assert self._reply_handle is not None
            self._reply = Reply(self._reply_handle)
        return self._reply

    def error(self) -> Optional[RpcError]:
        """The exception that tells how the call ended; None: with OK."""
        if self.failure is not None:
            return self.failure
        if self.code == _OK:
            return None
        error = reply_error(self.reply())
        if error.__cause__ is None:
            error.__cause__ = self._raised
        return error

    def received_headers(self) -> ReceivedMetadata:
        """The response headers, once they or the end have come."""
        if self.headers is not None:
            return self.headers
        return self.reply().headers() if self.code >= 0 else ReceivedMetadata()

    def _finish(self, reply: int) -> None:
        if self.kind in (Kind.UNARY, Kind.CLIENT_STREAM):
            self.response = body(reply)
        self._reply_handle = _raw.penstock_reply_retain(reply)
        self.code = _raw.penstock_reply_code(reply)
        call, self.call = self.call, 0
        _raw.penstock_call_release(call)
        self._group.discard(self)
        lent, self.lent = self.lent, None
        if lent is not None:
            self._raised = lent.raised
            # The registry has the context until the last callback has returned.
            lent.keep()
        # Before the tasks that wait go on, those that are told of the end are told.
        if self.on_end and self._driver.is_open:
            functions, self.on_end = self.on_end, []
            for function in functions:
                self.loop.call_soon(function)
        self.wake(self.readers)
        self.wake(self.writers)


# ---- Functions that C calls, on the thread of the event loop. No exception may pass from them to C. ----


def _on_headers(call: int, headers: int, number: Optional[int]) -> None:
    try:
        running = registry.get(number)
        if isinstance(running, Running):
            running.headers = ReceivedMetadata._of(headers, None, None)
            running.wake(running.readers)
    except BaseException as error:
        escape(error)


def _on_message(call: int, message: int, number: Optional[int]) -> None:
    try:
        running = registry.get(number)
        if isinstance(running, Running):
            data = taken(c_void_p(_raw.penstock_message_retain(message)))
            running._ahead -= 1
            # The size of an object is not known.
            running._largest = max(running._largest, len(data) if isinstance(data, bytes) else _AHEAD_BYTES, 1)
            if not running.is_cancelled:
                running.unread.append(data)
            running.wake(running.readers)
    except BaseException as error:
        escape(error)


def _on_sent(call: int, count: int, number: Optional[int]) -> None:
    try:
        running = registry.get(number)
        if isinstance(running, Running):
            running.wake(running.writers)
    except BaseException as error:
        escape(error)


def _on_reply(call: int, reply: int, number: Optional[int]) -> None:
    try:
        running = registry.get(number)
        registry.remove(number)
        if isinstance(running, Running):
            running._finish(reply)
    except BaseException as error:
        escape(error)


for _function in (_on_headers, _on_message, _on_sent):
    recover(_function, lambda given: None)
recover(_on_reply, lambda given: _on_reply(**given))
_headers_trampoline = _raw.penstock_call_event(_on_headers)
_message_trampoline = _raw.penstock_call_event(_on_message)
_sent_trampoline = _raw.penstock_call_sent(_on_sent)
_reply_trampoline = _raw.penstock_call_event(_on_reply)


def _template(
    on_headers: Any = None, on_message: Any = None, on_sent: Any = None
) -> Callable[[int], _raw.penstock_call_callbacks]:
    table = _raw.penstock_call_callbacks
    made = table(struct_size=sizeof(table), on_reply=_reply_trampoline)
    for name, trampoline in (("on_headers", on_headers), ("on_message", on_message), ("on_sent", on_sent)):
        if trampoline is not None:
            setattr(made, name, trampoline)

    def copy(number: int) -> _raw.penstock_call_callbacks:
        copied = table.from_buffer_copy(made)
        copied.user_data = number
        return copied

    return copy


# The callbacks of each kind of call. In a unary call the headers come with the end, and the one request has room.
_tables = {
    Kind.UNARY: _template(),
    Kind.CLIENT_STREAM: _template(on_headers=_headers_trampoline, on_sent=_sent_trampoline),
    Kind.SERVER_STREAM: _template(on_headers=_headers_trampoline, on_message=_message_trampoline),
    Kind.BIDI: _template(_headers_trampoline, _message_trampoline, _sent_trampoline),
}
