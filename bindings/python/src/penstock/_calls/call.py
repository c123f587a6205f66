"""Running calls in blocking style: streams, and calls that go on while the program does something else."""

from __future__ import annotations

from contextvars import Context
from types import TracebackType
from typing import Any, Optional, Tuple

from .. import _raw
from .._handles.context import CallContext
from .._handles.errors import TimedOutError
from .._handles.metadata import ReceivedMetadata
from .._handles.reply import Reply, RpcError
from .._handles.status import StatusCode
from .._handles.verdict import Kind
from .._raw import constants as c
from .codec import Codec
from .ends import Ends
from .line import Line
from .messages import Data, Deserializer, Serializer, body, deserialize, serialize
from .requests import Requests
from .running import RunningCall
from .steps import half_close


class Call(RunningCall):
    """A running call: iterate over it if it has a stream of responses; `result` gives the one response of another
    kind. If it was made without an iterator of requests, `write` and `done_writing` send them.

    A call object that is dropped cancels its call, unless the call has ended. The iteration raises an end other than
    OK as `RpcError`, after the last message.

    The methods that tell how the call ended (`code`, `details`, `trailing_metadata`, `stats` and so on) wait for the
    end and read no messages, as in grpcio. The status comes after the messages: if some are unread, the wait ends
    when another thread has read them, at the deadline, or when the call is cancelled. Iterate first, or set a
    ``timeout``.
    """

    def __init__(
        self,
        line: Line,
        requests: Optional[Requests],
        deserializer: Deserializer,
        timeout: Optional[float],
        keeper: object,
        context: Context,
        lent: Optional[CallContext],
        ends: Ends,
        serializer: Serializer,
        codec: Optional[Codec],
        kind: Kind,
    ) -> None:
        super().__init__(line, requests, deserializer, timeout, keeper, context, lent, ends)
        self._kept = line.kept
        self._serializer = serializer
        self._codec = codec
        # Whether there is one response, and no stream.
        self._answers = kind in (Kind.UNARY, Kind.CLIENT_STREAM)
        # The one response, once it has been deserialized, in a tuple.
        self._answer: Optional[Tuple[Any]] = None

    def __iter__(self) -> Call:
        return self

    def __next__(self) -> Any:
        try:
            data = self._kept.popleft()
        except IndexError:
            data = None
        if data is None:
            data = self._receive()
        try:
            return deserialize(self._deserializer, data, self._context)
        except RpcError as error:
            self._failure = error
            _raw.penstock_call_cancel(self._call, b"Exception deserializing response!")
            raise

    def _receive(self) -> Data:
        """Waits for the next message, and returns it. Raises the end of the call: all messages have been taken, and
        `_reply` is set. (`_reply` may also be set while messages are left.)"""
        if not self._is_read:
            data = self._line.receive()
            if data is not None:
                return data
            self._settled()
            self._forget()
        error = self._error()
        raise error if error is not None else StopIteration

    def _settled(self, timeout: Optional[float] = None) -> Reply:
        """Waits for the status, up to ``timeout`` seconds, and returns the reply. It reads no messages, so flow
        control still holds the server back."""
        found = self._reply
        if found is None:
            reply = Reply(self._line.status(timeout))
            self._code, self._details = reply.code, reply.details
            # Another thread may have waited, too. Then the first reply stays, and only one of both has a callback's
            # exception.
            found = self.__dict__.setdefault("_reply", reply)
            if reply.raised is not None:
                found.raised = reply.raised
        return found

    def write(self, request: Any) -> bool:
        """Sends a request, in a call that was made without an iterator; waits until there is room for it. False: the
        call has ended, and iterating over it, or `result`, tells how. StateError: after `done_writing`. RpcError: the
        request can't be serialized, or is too large; the call goes on."""
        return self._line.send(serialize(self._serializer, request, self._codec, self._context))

    def done_writing(self) -> None:
        """Says that there are no more requests. Does nothing if it was said before, or if the call has ended."""
        half_close(self._call)

    def _await(self, timeout: Optional[float]) -> Reply:
        """Waits for the end, up to ``timeout`` seconds. TimedOutError: it has not come."""
        try:
            return self._settled(None if timeout is None else max(timeout, 0))
        except TimedOutError:
            raise TimedOutError(c.E_TIMEOUT, f"the call has not ended within {timeout} s") from None

    def result(self, timeout: Optional[float] = None) -> Any:
        """Waits for the end, and returns the response of a call with one response, or None after a stream. Raises the
        call's `RpcError` if it ended with another status than OK; TimedOutError if it has not ended within
        ``timeout`` seconds (None: without limit), and then the call goes on. As in every call that waits, the thread
        drives the loop meanwhile, also that of a `Runtime` with ``drive=False``. A ``timeout`` of 0 neither waits nor
        drives, so it is allowed in a callback; another one raises WouldDeadlockError there, if the call has not
        ended: the callback keeps it from ending."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._answer[0] if self._answer is not None else None

    def exception(self, timeout: Optional[float] = None) -> Optional[RpcError]:
        """Waits for the end as `result` does, and returns the exception that `result` would raise; None: none."""
        reply = self._await(timeout)
        error = self._error()
        if error is None and self._answers and self._answer is None:
            # Two threads may come here; both return the same response.
            try:
                answer = deserialize(self._deserializer, body(reply._handle), self._context)
            except RpcError as raised:
                error = self._failure = raised
            else:
                self._answer = self._answer or (answer,)
        if self._answers:
            self._forget()
        return error

    def traceback(self, timeout: Optional[float] = None) -> Optional[TracebackType]:
        """Waits for the end as `result` does, and returns the traceback of its exception; None: there is none."""
        error = self.exception(timeout)
        return None if error is None else error.__traceback__

    def cancelled(self) -> bool:
        """Whether the call has ended with CANCELLED. Does not wait."""
        return self.done() and self.code() is StatusCode.CANCELLED

    def initial_metadata(self) -> ReceivedMetadata:
        """Waits for the response headers; empty if the call ends without them. If an interceptor may send the call
        again, they come only with the first message or the end (``headers_wait`` of `Interceptor`)."""
        if self._reply is not None:
            return self._reply.headers()
        headers = self._line.headers(self)
        return self._settled().headers() if headers is None else headers

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
