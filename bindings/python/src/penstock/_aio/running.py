"""A call as the library carries it out, in callback style. The objects that programs have, `Call` and its subclasses,
refer to it."""

from __future__ import annotations

import itertools
import sys
from collections import deque
from ctypes import byref, c_void_p, sizeof
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional

from .. import _raw
from .._calls.codec import fill
from .._calls.messages import Data, Sent, body, taken
from .._calls.steps import check_size
from .._handles.context import CallContext
from .._handles.ctrl_c import escape, recover
from .._handles.errors import check, check_with
from .._handles.metadata import ReceivedMetadata
from .._handles.reply import Reply, RpcError, reply_error
from .._handles.verdict import Kind
from .._raw import constants as c
from .driver import Group, call_on, until_woken, wake
from .loops import Waiting

# How many messages are asked for ahead of the program, and how many bytes they may have together. One message may
# always come.
_AHEAD_MESSAGES = 32
_AHEAD_BYTES = 262_144
_OK = 0
# A unary call has no messages to be read, and nobody waits for room. These stay empty.
_NONE_UNREAD: Deque[Data] = deque()
_NO_WRITERS: List[Waiting] = []

_Table = _raw.penstock_call_callbacks
# The calls that have not ended, by the numbers by which C knows them.
_running: Dict[int, Running] = {}
_numbers = itertools.count(1)


def left() -> int:
    """How many calls have not ended."""
    return len(_running)


class Shape(NamedTuple):
    """What calls of one kind have in common."""

    kind: Kind
    # The callbacks.
    table: _raw.penstock_call_callbacks
    has_one_response: bool

    @property
    def is_unary(self) -> bool:
        return self.kind is Kind.UNARY


class Running:
    """A call from its beginning to its end. C knows it by a number, until the call has ended.

    All methods are for the thread of the event loop, except `on_its_thread`.
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
        "_shape",
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

    def __init__(self, group: Group, method: str, shape: Shape) -> None:
        self._group = group
        self._driver = group.driver
        self._shape = shape
        self.loop = group.loop
        self.method = method
        self.kind = shape.kind
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
        self.unread: Deque[Data] = _NONE_UNREAD if shape.is_unary else deque()
        # How many messages have been asked for and have not come, and the size of the largest message so far.
        self._ahead = 0
        self._largest = 0
        # The tasks that wait: for something from the server, and for room for a message.
        self.readers: List[Waiting] = []
        self.writers: List[Waiting] = _NO_WRITERS if shape.is_unary else []
        # The functions to be called at the end of the call, soon.
        self.on_end: List[Callable[[], object]] = []

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        handle = self._reply_handle
        if handle is not None and self._reply is None and not ends():
            _raw.penstock_reply_release(handle)

    # ---- The beginning ----

    def begin(self, make: Callable[..., int], *arguments: Any) -> None:
        """Makes the call by the C function ``make(*arguments, callbacks, &call, &error)``."""
        group = self._group
        group.driver.check()
        number = next(_numbers)
        table = _Table.from_buffer_copy(self._shape.table)
        table.user_data = number
        _running[number] = self
        result = make(*arguments, byref(table), group.call_out, group.error_out)
        if result != c.OK:
            del _running[number]
            check_with(result, group.error)
        self.call = group.call.value or 0
        group.running.add(self)

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

    async def wait(self, waiting: List[Waiting], cancels: bool = True) -> None:
        """Waits for the next event in ``waiting``, which is `readers` or `writers`. ``cancels``: cancelling the wait
        cancels the call."""
        self._driver.check()
        try:
            await until_woken(self.loop, waiting)
        except BaseException:
            # The task is cancelled, or on trio interrupted.
            if cancels:
                self.cancel("the task that waited for the call was cancelled")
            raise

    def wake(self, waiting: List[Waiting]) -> None:
        if self._driver.is_open:
            wake(waiting)

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

    def on_its_thread(self, function: Callable[[], object]) -> None:
        """Calls ``function`` on the thread of the event loop. Objects of calls are dropped on any thread: the garbage
        collector runs on whichever."""
        call_on(self.loop, function)

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
        if self._shape.has_one_response:
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
        running = _running.get(number or 0)
        if running is not None:
            running.headers = ReceivedMetadata._of(headers, None, None)
            running.wake(running.readers)
    except BaseException as error:
        escape(error)


def _on_message(call: int, message: int, number: Optional[int]) -> None:
    try:
        running = _running.get(number or 0)
        if running is not None:
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
        running = _running.get(number or 0)
        if running is not None:
            running.wake(running.writers)
    except BaseException as error:
        escape(error)


def _on_reply(call: int, reply: int, number: Optional[int]) -> None:
    try:
        running = _running.pop(number or 0, None)
        if running is not None:
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


def _shape(
    kind: Kind, has_one_response: bool, on_headers: Any = None, on_message: Any = None, on_sent: Any = None
) -> Shape:
    made = _Table(struct_size=sizeof(_Table), on_reply=_reply_trampoline)
    for name, trampoline in (("on_headers", on_headers), ("on_message", on_message), ("on_sent", on_sent)):
        if trampoline is not None:
            setattr(made, name, trampoline)
    return Shape(kind, made, has_one_response)


# In a unary call the headers come with the end, and the one request has room.
UNARY = _shape(Kind.UNARY, True)
CLIENT_STREAM = _shape(Kind.CLIENT_STREAM, True, on_headers=_headers_trampoline, on_sent=_sent_trampoline)
SERVER_STREAM = _shape(Kind.SERVER_STREAM, False, on_headers=_headers_trampoline, on_message=_message_trampoline)
BIDI = _shape(Kind.BIDI, False, _headers_trampoline, _message_trampoline, _sent_trampoline)
SHAPES = {shape.kind: shape for shape in (UNARY, CLIENT_STREAM, SERVER_STREAM, BIDI)}
