"""The calls of grpc.aio on this package's calls."""

from __future__ import annotations

import asyncio
import functools
import time
import weakref
from contextvars import Context
from typing import Any, AsyncIterator, Callable, Generator, Iterable, List, Optional, Tuple

from ..._aio.channel import Channel
from ..._aio.loops import Waiting
from ..._aio.requests import AsyncRequests
from ..._aio.running import Running
from ..._calls.keywords import end_of
from ..._calls.messages import Data, Deserializer, deserialize
from ..._handles.errors import ClosedError
from ..._handles.objects import Uncopied
from ..._handles.reply import RpcError, local_error
from ..._handles.status import StatusCode
from ..._handles.verdict import Connectivity
from .._names import code_of
from ._theirs import CANCELLED, EOF, LOCALLY_CANCELLED, Metadata, UsageError, error_of, metadata_of, theirs

_FINISHED = "RPC already finished."
_HALF_CLOSED = 'RPC is half closed after calling "done_writing".'
MIXED = "The iterator and read/write APIs may not be mixed on a single RPC."


class Call(Uncopied):
    """A call with the methods of ``grpc.aio.Call``. A cancel by the program counts at once."""

    # The timer for a deadline that ends the wait for a reader.
    _timer: Optional[asyncio.TimerHandle] = None

    def __init__(
        self,
        running: Running,
        deserializer: Deserializer,
        timeout: Optional[float],
        keeper: Channel,
        context: Context,
    ) -> None:
        self._running = running
        self._deserializer = deserializer
        self._until = end_of(timeout)
        self._keeper = keeper
        self._context = context
        self._callbacks: Optional[List[Callable[[Any], object]]] = []

    def __del__(self) -> None:
        running = self._running
        if self._timer is not None:
            running.on_its_thread(self._timer.cancel)
        if running.call:
            if running.lent is not None:
                running.lent.keep()
            running.on_its_thread(self._drop)

    def _drop(self) -> None:
        self._running.cancel("Cancelled upon garbage collection!")
        self._tell()

    @property
    def _ends_here(self) -> bool:
        """Whether this side has ended the call."""
        return self._running.is_cancelled or self._running.failure is not None

    @property
    def _is_cancelled(self) -> bool:
        """Whether the program has cancelled the call: by its task, or because the requests could not be read."""
        failure = self._running.failure
        return self._running.is_cancelled if failure is None else failure.code() is StatusCode.UNKNOWN

    def cancelled(self) -> bool:
        """Whether the call has ended with CANCELLED."""
        return self.done() and self._outcome()[0] == CANCELLED

    def done(self) -> bool:
        """Whether the call has ended and its messages have been read. Messages that are not read before the deadline
        are lost, as in grpc.aio, also if the server has sent OK."""
        running = self._running
        if self._ends_here:
            return True
        if running.code < 0:
            return False
        if self._until is not None and time.monotonic() >= self._until:
            self._expire()
        return not running.unread

    def _expire(self) -> None:
        """Called at the deadline, when the call has ended."""
        if self._running.unread:
            self._fail(local_error(StatusCode.DEADLINE_EXCEEDED, "deadline exceeded: messages have not been read"))

    def _fail(self, error: RpcError) -> None:
        """Ends the call because of ``error``, whatever its end was."""
        running = self._running
        running.fail(error)
        if running.failure is None:
            running.failure = error
        running.unread.clear()
        running.loop.call_soon(self._tell)
        running.wake(running.readers)
        running.wake(running.writers)

    def cancel(self) -> bool:
        """Ends the call with CANCELLED. False: it had ended before."""
        if self.done():
            return False
        running = self._running
        running.cancel(LOCALLY_CANCELLED)
        # Those that wait for the end need not wait for the library's. Its end may have come already, behind messages
        # that have not been read.
        running.is_cancelled = True
        running.unread.clear()
        running.wake(running.readers)
        running.wake(running.writers)
        self._tell()
        return True

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Calls ``callback(call)`` when the call has ended; at once if it has."""
        if self._callbacks is None:
            callback(self)
            return
        if not self._callbacks:
            # The call object is the program's: if it is dropped, the call is cancelled.
            self._running.on_end.append(functools.partial(_tell, weakref.ref(self)))
        self._callbacks.append(callback)
        self._tell()

    def _tell(self) -> None:
        if self._callbacks is None:
            return
        if self.done():
            callbacks, self._callbacks = self._callbacks, None
            tell_all(callbacks, self, self._running.loop)
        else:
            self._mind_the_deadline()

    def _mind_the_deadline(self) -> None:
        """Makes the deadline end the wait for a reader. While the call runs, the deadline is the library's."""
        left = self.time_remaining()
        if left is not None and self._timer is None and self._running.code >= 0:
            loop: Any = self._running.loop
            self._timer = loop.call_later(left, _expire, weakref.ref(self))

    def time_remaining(self) -> Optional[float]:
        """The seconds until the deadline, at least 0; None without a deadline."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    async def _ended(self) -> None:
        running = self._running
        while not self.done():
            self._mind_the_deadline()
            await running.wait(running.readers, cancels=False)
        # A task that has gone on for another reason may see the end before those are called that are told of it.
        self._tell()

    async def initial_metadata(self) -> Any:
        """Waits for the response headers."""
        running = self._running
        while running.headers is None and running.code < 0 and not self._ends_here:
            await running.wait(running.readers, cancels=False)
        return metadata_of(running.received_headers())

    async def trailing_metadata(self) -> Any:
        """Waits for the end, and returns the trailers."""
        await self._ended()
        return Metadata() if self._ends_here else metadata_of(self._running.reply().trailers())

    def _outcome(self) -> Tuple[int, str]:
        """The number of the status code, and the message, of a call that has ended."""
        if self._is_cancelled:
            return CANCELLED, LOCALLY_CANCELLED
        error = self._running.error()
        return (StatusCode.OK.number, "") if error is None else (error.code().number, error.details())

    async def code(self) -> Any:
        """Waits for the end, and returns the member of ``grpc.StatusCode``."""
        await self._ended()
        return code_of(self._outcome()[0])

    async def details(self) -> str:
        """Waits for the end, and returns the status message."""
        await self._ended()
        return self._outcome()[1]

    async def debug_error_string(self) -> Optional[str]:
        """Waits for the end, and returns what is known of it as one line; empty for OK, None after `cancel`."""
        await self._ended()
        if self._is_cancelled:
            return None
        error = self._running.error()
        return "" if error is None else error.debug_error_string()

    async def wait_for_connection(self) -> None:
        """Waits until the server has answered with its headers, or the call has ended. An end other than OK is
        raised."""
        await self.initial_metadata()
        if self.done():
            self._raise_for_status()

    def _raise_for_status(self) -> None:
        if self._is_cancelled:
            raise self._cancelled_error()
        error = self._running.error()
        if error is not None:
            raise error_of(error, self._running.received_headers())

    def _cancelled_error(self) -> asyncio.CancelledError:
        error = asyncio.CancelledError()
        if self._running.failure is not None:
            error.__cause__ = self._running.failure.__cause__
        return error

    def _deserialized(self, data: Data) -> Any:
        try:
            return deserialize(self._deserializer, data, self._context)
        except RpcError as error:
            self._fail(error)
            raise error_of(error, self._running.received_headers()) from error.__cause__

    async def _wait(self, waiting: List[Waiting]) -> None:
        try:
            await self._running.wait(waiting, cancels=False)
        except asyncio.CancelledError:
            self.cancel()
            raise

    def __repr__(self) -> str:
        state = code_of(self._outcome()[0]).name if self.done() else "running"
        return f"<penstock.grpc.aio.{type(self).__name__} {self._running.method}, {state}>"


def tell_all(callbacks: Iterable[Callable[[Any], object]], call: object, loop: Any) -> None:
    """Calls each of ``callbacks``. The exception of one keeps nothing from the others."""
    for callback in callbacks:
        try:
            callback(call)
        except Exception as error:
            text = "a callback of a call raised"
            loop.call_exception_handler({"message": text, "exception": error})


def _expire(reference: weakref.ref[Call]) -> None:
    call = reference()
    if call is not None:
        call._expire()


def _tell(reference: weakref.ref[Call]) -> None:
    call = reference()
    if call is not None:
        call._tell()


class _UnaryResponse(Call):
    """The part of calls with one response."""

    def __await__(self) -> Generator[Any, None, Any]:
        return self._response().__await__()

    async def _response(self) -> Any:
        running = self._running
        while running.code < 0 and not self._ends_here:
            await self._wait(running.readers)
        self._raise_for_status()
        assert running.response is not None
        return self._deserialized(running.response)


class _StreamResponse(Call):
    """The part of calls with several responses."""

    _iterator: Optional[AsyncIterator[Any]] = None
    _reads = False

    async def _fetch(self) -> AsyncIterator[Any]:
        while True:
            message = await self._next()
            if message is EOF:
                break
            yield message
        self._raise_for_status()

    def __aiter__(self) -> AsyncIterator[Any]:
        if self._reads:
            raise UsageError(MIXED)
        if self._iterator is None:
            self._iterator = self._fetch()
        return self._iterator

    async def _next(self) -> Any:
        running = self._running
        if self.done():
            return EOF
        while not running.unread:
            if running.code >= 0 or self._ends_here:
                return EOF
            running.ahead.ask(running.call)
            await self._wait(running.readers)
        data = running.unread.popleft()
        if running.code < 0:
            running.ahead.ask(running.call)
        elif not running.unread:
            # First the reader of the last message goes on, then the callbacks are called, and then those who wait
            # for the end go on.
            if self._timer is not None:
                self._timer.cancel()
            running.loop.call_soon(self._tell)
            running.wake(running.readers)
        return self._deserialized(data)

    async def read(self) -> Any:
        """The next message; ``grpc.aio.EOF`` if there are no more."""
        if self.done():
            self._raise_for_status()
            return EOF
        if self._iterator is not None:
            raise UsageError(MIXED)
        self._reads = True
        message = await self._next()
        if message is EOF:
            self._raise_for_status()
        return message


class _StreamRequest(Call):
    """The part of calls with several requests."""

    _requests: AsyncRequests
    _is_read = False
    _done_writing_flag = False

    async def wait_for_connection(self) -> None:
        """Waits until the channel is connected, or the call has ended: a server may send its headers only after a
        request that the program sends later. An end other than OK is raised."""
        running = self._running
        answered = asyncio.ensure_future(self.initial_metadata())
        try:
            while running.headers is None and running.code < 0 and not self._ends_here:
                state = self._keeper.connectivity
                if state is Connectivity.READY:
                    return
                changed = asyncio.ensure_future(self._changed(state))
                try:
                    await asyncio.wait([changed, answered], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
        finally:
            answered.cancel()
        if self.done():
            self._raise_for_status()

    async def _changed(self, state: Connectivity) -> None:
        try:
            await self._keeper.wait_connectivity(state)
        except ClosedError:
            # The close ends the call.
            await self._ended()

    async def write(self, request: Any) -> None:
        """Sends a message, and waits until there is room for it."""
        if self._is_read:
            raise UsageError(MIXED)
        if self.done():
            raise asyncio.InvalidStateError(_FINISHED)
        if self._done_writing_flag:
            raise asyncio.InvalidStateError(_HALF_CLOSED)
        try:
            data = self._requests.serialized(request)
            while not self._running.try_send(data):
                await self._wait(self._running.writers)
                if self._ends_here:
                    self._raise_for_status()
        except RpcError as error:
            raise error_of(error) from error.__cause__

    async def done_writing(self) -> None:
        """Says that no more messages will be sent."""
        if self._is_read:
            raise UsageError(MIXED)
        if not self.done() and not self._done_writing_flag:
            self._done_writing_flag = True
            self._running.half_close()


class UnaryUnaryCall(_UnaryResponse):
    """A call with one request and one response."""


class UnaryStreamCall(_StreamResponse):
    """A call with one request and a stream of responses."""


class StreamUnaryCall(_StreamRequest, _UnaryResponse):
    """A call with a stream of requests and one response."""


class StreamStreamCall(_StreamRequest, _StreamResponse):
    """A call with streams in both directions."""


for _ours, _base in (
    (Call, theirs.Call),
    (UnaryUnaryCall, theirs.UnaryUnaryCall),
    (UnaryStreamCall, theirs.UnaryStreamCall),
    (StreamUnaryCall, theirs.StreamUnaryCall),
    (StreamStreamCall, theirs.StreamStreamCall),
):
    _base.register(_ours)
