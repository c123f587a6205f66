"""A call as the library carries it out, in callback style. The objects that programs have, `Call` and its subclasses,
refer to it."""

from __future__ import annotations

import sys
from typing import Any, Callable, List, NamedTuple, Optional

from .. import _raw
from .._calls.ahead import Ahead
from .._calls.batch import take_waiting
from .._calls.carried import HEADERS, READABLE, SENT, Carried, Table, callbacks, carry
from .._calls.messages import Data, Sent, body
from .._calls.steps import half_close, sent, tried
from .._handles.context import CallContext
from .._handles.metadata import ReceivedMetadata
from .._handles.reply import Reply, RpcError, reply_error
from .._handles.verdict import Kind
from .._raw import constants as c
from .driver import Group, call_on, until_woken, wake
from .loops import Waiting

_OK = 0
# A unary call has no messages to be read, and nobody waits for room. These stay empty.
_NOTHING_AHEAD = Ahead()
_NO_WRITERS: List[Waiting] = []


class Shape(NamedTuple):
    """The common part of calls of one kind."""

    kind: Kind
    # The callbacks.
    callbacks: Table
    has_one_response: bool

    @property
    def is_unary(self) -> bool:
        return self.kind is Kind.UNARY


class Running(Carried):
    """A call from its beginning to its end.

    All methods are for the thread of the event loop, except `on_its_thread`.
    """

    __slots__ = (
        "__weakref__",
        "_driver",
        "_group",
        "_raised",
        "_reply",
        "_reply_handle",
        "_shape",
        "call",
        "code",
        "failure",
        "kind",
        "lent",
        "loop",
        "method",
        "on_end",
        "readers",
        "response",
        "writers",
    )

    def __init__(self, group: Group, method: str, shape: Shape) -> None:
        super().__init__(_NOTHING_AHEAD if shape.is_unary else Ahead())
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
        # The end that this side has found, such as an exception of the iterator of requests.
        self.failure: Optional[RpcError] = None
        self._reply_handle: Optional[int] = None
        self._reply: Optional[Reply] = None
        # The exception of an `async def` callback.
        self._raised: Optional[BaseException] = None
        # The response of a call that has one.
        self.response: Optional[Data] = None
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
        self.call = carry(self, self._shape.callbacks, group.out, make, *arguments)
        group.running.add(self)

    # ---- Sending ----

    def try_send(self, data: Sent) -> bool:
        """Sends a message if there is room. True: it is sent, or the call has ended. RpcError: it is over the
        limit."""
        if not self.call:
            return True
        result, length = tried(self.call, data)
        if result == c.E_WOULD_BLOCK:
            return False
        sent(result, length)
        return True

    async def send(self, data: Sent) -> None:
        """Sends a message when there is room for it. Cancelling the wait cancels the call."""
        while not self.try_send(data):
            await self.wait(self.writers)

    def half_close(self) -> None:
        if self.call:
            half_close(self.call)

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

    def news(self) -> None:
        self.wake(self.readers)

    def readable(self) -> None:
        self._driver.readable.append(self)

    def fetch(self) -> None:
        """Takes the messages that wait in the call."""
        while self.call and self.ahead.awaits and take_waiting(self.call, self.ahead.came_together):
            pass
        self.wake(self.readers)

    def room(self) -> None:
        self.wake(self.writers)

    async def receive(self) -> Optional[Data]:
        """The next message; None: there are no more, and the call has ended."""
        while not self.unread:
            if self.code >= 0:
                return None
            self.ahead.ask(self.call)
            await self.wait(self.readers)
        data = self.unread.popleft()
        self.ahead.ask(self.call)
        return data

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
        # A call that the program has cancelled has its end already.
        if self.code < 0 and self.failure is None and not self.is_cancelled:
            self.failure = error
            self.cancel(error.details())

    def reply(self) -> Reply:
        """The reply of a call that has ended."""
        if self._reply is None:
            assert self._reply_handle is not None
            self._reply = Reply(self._reply_handle)
        return self._reply

    def error(self) -> Optional[RpcError]:
        """The exception that tells how the call ended; None: with OK, or it has not ended yet."""
        if self.failure is not None:
            return self.failure
        if self.code <= _OK:
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

    def over(self, reply: int) -> None:
        if self._reply_handle is None:
            if self._shape.has_one_response:
                self.response = body(reply)
            else:
                self.fetch()
            self._reply_handle = _raw.penstock_reply_retain(reply)
        self.code = _raw.penstock_reply_code(reply)
        call, self.call = self.call, 0
        if call:
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


def _shape(kind: Kind, has_one_response: bool, **trampolines: Any) -> Shape:
    return Shape(kind, callbacks(**trampolines), has_one_response)


# In a unary call the headers come with the end, and the one request has room.
UNARY = _shape(Kind.UNARY, True)
CLIENT_STREAM = _shape(Kind.CLIENT_STREAM, True, on_headers=HEADERS, on_sent=SENT)
SERVER_STREAM = _shape(Kind.SERVER_STREAM, False, on_headers=HEADERS, on_readable=READABLE)
BIDI = _shape(Kind.BIDI, False, on_headers=HEADERS, on_readable=READABLE, on_sent=SENT)
SHAPES = {shape.kind: shape for shape in (UNARY, CLIENT_STREAM, SERVER_STREAM, BIDI)}
