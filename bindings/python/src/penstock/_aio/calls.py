"""The calls of `penstock.aio`, as programs have them."""

from __future__ import annotations

import enum
import functools
import json
import time
from contextvars import Context
from typing import Any, AsyncIterator, Callable, Dict, Generator, Optional, Union

from .. import _raw
from .._calls.keywords import end_of
from .._calls.messages import Data, Deserializer, deserialize
from .._handles.errors import GoneError, StateError
from .._handles.metadata import ReceivedMetadata, owned_text
from .._handles.objects import Uncopied
from .._handles.reply import CompletedCall, RpcError, RunningValues, Values
from .._handles.status import StatusCode
from .._raw import constants as c
from .requests import AsyncRequests
from .running import Running

_CANCELLED = "Locally cancelled by application!"


class _End(enum.Enum):
    """The type of `EOF`."""

    EOF = "EOF"

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "penstock.aio.EOF"


# The value that `read` returns when there are no more messages.
EOF = _End.EOF


class Call(Uncopied):
    """A call on the event loop that was running when it was made. It begins at once, and only that loop's thread may
    use it. A call object that is dropped cancels its call.

    A status other than OK comes as `RpcError`. If a task is cancelled while it waits in the call, for a response or
    for room to send, the call is cancelled too.
    """

    def __init__(
        self,
        running: Running,
        deserializer: Deserializer,
        timeout: Optional[float],
        keeper: object,
        context: Context,
    ) -> None:
        self._running = running
        self._deserializer = deserializer
        self._until = end_of(timeout)
        self._keeper = keeper
        self._context = context

    def __del__(self) -> None:
        running = self._running
        if running.code < 0:
            if running.lent is not None:
                # The callbacks that are still to come need the context.
                running.lent.keep()
            running.on_its_thread(functools.partial(running.cancel, "the call object was dropped"))

    # ---- The end ----

    def cancel(self, reason: str = "") -> bool:
        """Ends the call with CANCELLED and ``reason``; messages that have not been read are discarded. Does not wait.
        False: the call had ended before."""
        return self._running.cancel(reason or _CANCELLED)

    def done(self) -> bool:
        """Whether the call has ended."""
        return self._running.code >= 0

    def cancelled(self) -> bool:
        """Whether the call has ended with CANCELLED."""
        return self._running.code == StatusCode.CANCELLED.number

    def add_done_callback(self, callback: Callable[[Call], object]) -> None:
        """Calls ``callback(call)`` soon, on the event loop, once the call has ended."""
        if self._running.code >= 0:
            self._running.loop.call_soon(callback, self)
        else:
            self._running.on_end.append(functools.partial(callback, self))

    async def outcome(self) -> Union[CompletedCall, RpcError]:
        """Waits for the end, and gives everything that is known of it: code, details, trailers, statistics, values.
        It reads no messages: see `code`."""
        await self._running.ended()
        error = self._running.error()
        return CompletedCall(self._running.reply()) if error is None else error

    async def code(self) -> StatusCode:
        """Waits for the end, and returns the status code. Reads no messages: the status of a stream comes after its
        messages, so read them first, or set a ``timeout``."""
        return (await self.outcome()).code()

    async def details(self) -> str:
        """Waits for the end, as `code` does, and returns the status message."""
        return (await self.outcome()).details()

    async def trailing_metadata(self) -> ReceivedMetadata:
        """Waits for the end, as `code` does, and returns the trailers."""
        await self._running.ended()
        return self._running.reply().trailers()

    async def initial_metadata(self) -> ReceivedMetadata:
        """Waits for the response headers; empty if the call ends without them. Those of a unary call come with its
        end."""
        running = self._running
        while running.headers is None and running.code < 0:
            await running.wait(running.readers, cancels=False)
        return running.received_headers()

    # ---- While it runs ----

    def time_remaining(self) -> Optional[float]:
        """The seconds until the deadline, at least 0; None without a deadline."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    @property
    def values(self) -> Values:
        """The values that the call's hops and its caller have shared so far. While the call runs, a value that is set
        here is shared with the hops."""
        running = self._running
        return RunningValues(running.call, self) if running.call else Values(running.reply())

    @property
    def trace(self) -> Dict[str, Any]:
        """The events at each hop (with the option ``trace`` of the channel or the call), and ``holder``, which says
        what the call waits for now."""
        running = self._running
        if not running.call:
            return running.reply().trace()
        trace: Dict[str, Any] = json.loads(owned_text(_raw.penstock_call_trace_json, running.call))
        return trace

    def __repr__(self) -> str:
        code = self._running.code
        state = "running" if code < 0 else StatusCode(code).name
        return f"<penstock.aio.{type(self).__name__} {self._running.method}, {state}>"

    def _deserialized(self, data: Data) -> Any:
        try:
            return deserialize(self._deserializer, data, self._context)
        except RpcError as error:
            self._running.fail(error)
            raise


class UnaryCall(Call):
    """A call with one response: await it, any number of times."""

    def __await__(self) -> Generator[Any, None, Any]:
        return self._response().__await__()

    async def _response(self) -> Any:
        running = self._running
        while running.code < 0:
            await running.wait(running.readers)
        if running.code or running.failure is not None:
            error = running.error()
            assert error is not None
            raise error
        assert running.response is not None
        return self._deserialized(running.response)


class _Responses(Call):
    """The part of calls with several responses."""

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        message = await self.read()
        if message is EOF:
            raise StopAsyncIteration
        return message

    async def read(self) -> Any:
        """The next message; `EOF` if there are no more. RpcError: the call has ended with another status than OK."""
        data = await self._running.receive()
        if data is not None:
            return self._deserialized(data)
        error = self._running.error()
        if error is not None:
            raise error
        return EOF


class _Requests(Call):
    """The part of calls with several requests."""

    _requests: AsyncRequests
    # Whether an iterator of requests was given.
    _is_read = False
    _is_half_closed = False

    async def write(self, request: Any) -> None:
        """Sends a message, and waits until there is room for it.

        GoneError: the call has ended. StateError: after `done_writing`, or requests were given to the call."""
        self._check_writing()
        if self._running.code >= 0 or self._running.is_cancelled:
            raise self._running.error() or GoneError(c.E_GONE, "the call has ended")
        await self._running.send(self._requests.serialized(request))

    async def done_writing(self) -> None:
        """Says that no more messages will be sent. A second time does nothing."""
        if not self._is_half_closed:
            self._check_writing()
            self._is_half_closed = True
            self._running.half_close()

    def _check_writing(self) -> None:
        if self._is_read or self._is_half_closed:
            what = "the requests were given to the call" if self._is_read else "done_writing has been called"
            raise StateError(c.E_STATE, f"no message can be written: {what}")


class UnaryStreamCall(_Responses):
    """A call with one request and a stream of responses: iterate over it with ``async for``, or use `read`."""


class StreamUnaryCall(_Requests, UnaryCall):
    """A call with a stream of requests and one response. Without an iterator of requests, send them by `write`, and
    then call `done_writing`."""


class StreamStreamCall(_Requests, _Responses):
    """A call with streams in both directions."""
