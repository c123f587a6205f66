"""The calls with a stream of responses, in blocking style."""

from __future__ import annotations

from contextvars import Context
from ctypes import byref, c_void_p
from typing import Any, Optional

from .. import _raw
from .._handles.context import CallContext
from .._handles.errors import check
from .._handles.metadata import ReceivedMetadata
from .._handles.reply import Reply, RpcError
from .._handles.status import StatusCode
from .._raw import constants as c
from .blocking import ended
from .messages import Data, Deserializer, body, deserialize, taken
from .requests import Requests
from .running import RunningCall
from .wait import Waiters


class Call(RunningCall):
    """A running call with a stream of responses: iterate over it.

    A call object that is dropped cancels its call, unless the call has ended. The iteration raises an end other than
    OK as `RpcError`, after the last message.

    The methods that tell how the call ended (`code`, `details`, `trailing_metadata`, `stats` and so on) wait for the
    end and read no messages, as in grpcio. The status comes after the messages: if some are unread, the wait ends
    when another thread has read them, at the deadline, or when the call is cancelled. Iterate first, or set a
    ``timeout``.
    """

    def __init__(
        self,
        call: int,
        requests: Optional[Requests],
        deserializer: Deserializer,
        timeout: Optional[float],
        waiters: Waiters,
        keeper: object,
        context: Context,
        lent: Optional[CallContext],
    ) -> None:
        super().__init__(call, requests, deserializer, timeout, keeper, context, lent)
        self._waiters = waiters

    def __iter__(self) -> Call:
        return self

    def __next__(self) -> Any:
        data = self._unread.popleft() if self._unread else self._receive()
        if data is None:
            error = self._error()
            raise error if error is not None else StopIteration
        try:
            return deserialize(self._deserializer, data, self._context)
        except RpcError as error:
            self._failure = error
            _raw.penstock_call_cancel(self._call, b"Exception deserializing response!")
            raise

    def _receive(self) -> Optional[Data]:
        """Waits for the next message, and returns it. None: all messages have been taken, and `_reply` is set.
        (`_reply` may also be set while messages are left.)"""
        if self._is_read:
            return None
        message = c_void_p()
        try:
            result = self._waiters.wait(_raw.penstock_call_receive, self._call, byref(message))
            if result == c.OK:
                return taken(message)
        except BaseException:
            # If a Ctrl-C came after a message had been received, the message is kept for the next iteration.
            if message.value is not None:
                self._unread.append(taken(message))
            raise
        if result != c.E_END:
            check(result, "no message can be received")
        self._settled()
        self._forget()
        return None

    def _settled(self) -> Reply:
        """Waits for the status, and returns the reply. It reads no messages, so flow control still holds the server
        back."""
        found = self._reply
        if found is None:
            reply = Reply(ended(self._waiters, _raw.penstock_call_wait_status, self._call))
            self._code, self._details = reply.code, reply.details
            # Another thread may have waited, too. Then the first reply stays, and only one of both has a callback's
            # exception.
            found = self.__dict__.setdefault("_reply", reply)
            if reply.raised is not None:
                found.raised = reply.raised
        return found

    def result(self) -> Any:
        """Waits for the end and returns the one response, or raises the call's failure."""
        try:
            reply = self._settled()
        except BaseException:
            self.cancel()
            raise
        context = self._forget()
        error = self._error()
        if error is not None:
            raise error
        return deserialize(self._deserializer, body(reply._handle), context)

    def initial_metadata(self) -> ReceivedMetadata:
        """Waits for the response headers; empty if the call ends without them. If an interceptor may send the call
        again, they come only with the first message or the end (``headers_wait`` of `Interceptor`)."""
        if self._reply is not None:
            return self._reply.headers()
        headers = c_void_p()
        result = self._waiters.wait(_raw.penstock_call_wait_headers, self._call, byref(headers))
        if result == c.E_END:
            return self._settled().headers()
        check(result, "no headers can be waited for")
        return ReceivedMetadata._of(headers.value, self, self._call)

    def code(self) -> StatusCode:
        """The status code. Waits for the end, see `Call`."""
        self._settled()
        error = self._error()
        return self._code if error is None else error.code()

    def details(self) -> str:
        """The status message. Waits for the end, see `Call`."""
        self._settled()
        error = self._error()
        return self._details if error is None else error.details()
