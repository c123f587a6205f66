"""Calls that pass grpc.aio's own interceptors. Those of this package are part of the call below them."""

from __future__ import annotations

import asyncio
import functools
from typing import Any, AsyncIterator, Callable, Dict, Generator, Iterable, List, Optional

from ..._aio.driver import call_on
from ..._handles.objects import Uncopied
from ..._handles.verdict import Kind
from .._names import code_of
from ._calls import MIXED, tell_all
from ._theirs import EOF, LOCALLY_CANCELLED, AioRpcError, Metadata, UsageError, theirs

_FINISHED = "RPC already finished."
_HALF_CLOSED = 'RPC is half closed after calling "done_writing".'
# The interceptors of each kind of call: their class and their method.
_KINDS = {
    Kind.UNARY: (theirs.UnaryUnaryClientInterceptor, "intercept_unary_unary"),
    Kind.SERVER_STREAM: (theirs.UnaryStreamClientInterceptor, "intercept_unary_stream"),
    Kind.CLIENT_STREAM: (theirs.StreamUnaryClientInterceptor, "intercept_stream_unary"),
    Kind.BIDI: (theirs.StreamStreamClientInterceptor, "intercept_stream_stream"),
}


def kinds_of(interceptor: object) -> List[Kind]:
    """The kinds of calls for which ``interceptor``, one of grpc.aio's, is; empty: it is none of grpc.aio's."""
    return [kind for kind, (base, _) in _KINDS.items() if isinstance(interceptor, base)]


def by_kind(interceptors: Iterable[Any]) -> Dict[Kind, List[Any]]:
    """The interceptors with which a channel is made. ValueError: one is none of grpc.aio's."""
    found: Dict[Kind, List[Any]] = {kind: [] for kind in _KINDS}
    for interceptor in interceptors:
        kinds = kinds_of(interceptor)
        if not kinds:
            names = " or ".join(base.__name__ for base, _ in _KINDS.values())
            raise ValueError(f"Interceptor {interceptor} must be {names}.")
        # grpc.aio uses such an interceptor for its first kind only.
        found[kinds[0]].append(interceptor)
    return found


class InterceptedCall(Uncopied):
    """A call whose interceptors run in a task. Once they are through, all methods are those of the call that the
    first of them has returned."""

    _kind: Kind

    def __init__(
        self, method: Any, interceptors: List[Any], request: Any, compression: Any, keywords: Dict[str, Any]
    ) -> None:
        self._method = method
        self._compression = compression
        self._loop = method._channel._group.loop
        self._callbacks: Optional[List[Callable[[Any], object]]] = []
        metadata = keywords["metadata"]
        if not isinstance(metadata, Metadata):
            metadata = Metadata(*(metadata or ()))
        details = theirs.ClientCallDetails(
            method._method.name,
            keywords["timeout"],
            metadata,
            keywords["credentials"],
            keywords["wait_for_ready"],
        )
        self._task = self._loop.create_task(self._run(interceptors, details, self._requests(request)))
        self._task.add_done_callback(self._through)

    def _requests(self, request: Any) -> Any:
        return request

    async def _run(self, interceptors: List[Any], details: Any, request: Any) -> Any:
        if not interceptors:
            return self._as_call(self._make(details, request))
        intercept = getattr(interceptors[0], _KINDS[self._kind][1])
        returned = await intercept(functools.partial(self._run, interceptors[1:]), details, request)
        return self._as_call(returned)

    def _make(self, details: Any, request: Any) -> Any:
        return self._method._for(details.method)._begin(
            request,
            timeout=details.timeout,
            metadata=details.metadata,
            credentials=details.credentials,
            wait_for_ready=details.wait_for_ready,
            compression=self._compression,
        )

    def _as_call(self, returned: Any) -> Any:
        return returned if isinstance(returned, theirs.Call) else _Answered(returned)

    def __del__(self) -> None:
        if hasattr(self, "_task"):
            call_on(self._loop, self.cancel)

    def _call(self) -> Any:
        """The call, once the interceptors are through; None: they are not, or have raised."""
        task = self._task
        return task.result() if task.done() and not task.cancelled() and task.exception() is None else None

    def _through(self, task: asyncio.Task[Any]) -> None:
        call = self._call()
        if call is None or call.done():
            self._tell(None)
        elif self._callbacks:
            call.add_done_callback(self._tell)

    def _tell(self, _: Any) -> None:
        callbacks, self._callbacks = self._callbacks, None
        tell_all(callbacks or (), self, self._loop)

    def cancel(self) -> bool:
        """Cancels the interceptors, or the call once they are through."""
        if not self._task.done():
            cancels: bool = self._task.cancel()
            return cancels
        call = self._call()
        return call is not None and bool(call.cancel())

    def cancelled(self) -> bool:
        """Whether the interceptors or the call have been cancelled."""
        if not self._task.done() or self._task.cancelled():
            return bool(self._task.cancelled())
        error = self._task.exception()
        if error is not None:
            return isinstance(error, AioRpcError) and bool(error.code().value[0] == 1)
        return bool(self._task.result().cancelled())

    def done(self) -> bool:
        """Whether interceptors and call have ended."""
        call = self._call()
        return self._task.done() if call is None else bool(call.done())

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Calls ``callback(call)`` when interceptors and call have ended."""
        if self._callbacks is None or self.done():
            callback(self)
            return
        call = self._call()
        if call is not None and not self._callbacks:
            call.add_done_callback(self._tell)
        self._callbacks.append(callback)

    def time_remaining(self) -> Optional[float]:
        """Not offered, as in grpcio."""
        raise NotImplementedError

    async def _ask(self, name: str, cancelled: Any) -> Any:
        """What the method ``name`` of the call gives, or of the error that an interceptor has raised."""
        try:
            call = await asyncio.shield(self._task)
        except AioRpcError as error:
            return getattr(error, name)()
        except asyncio.CancelledError:
            if not self._task.cancelled():
                raise
            return cancelled
        return await getattr(call, name)()

    async def initial_metadata(self) -> Any:
        """Waits for the response headers."""
        return await self._ask("initial_metadata", None)

    async def trailing_metadata(self) -> Any:
        """Waits for the end, and returns the trailers."""
        return await self._ask("trailing_metadata", None)

    async def code(self) -> Any:
        """Waits for the end, and returns the member of ``grpc.StatusCode``."""
        return await self._ask("code", code_of(1))

    async def details(self) -> Any:
        """Waits for the end, and returns the status message."""
        return await self._ask("details", LOCALLY_CANCELLED)

    async def debug_error_string(self) -> Any:
        """Waits for the end, and returns what is known of it."""
        return await self._ask("debug_error_string", "")

    async def wait_for_connection(self) -> None:
        """Waits until the server has answered with its headers."""
        call = await self._task
        await call.wait_for_connection()


class _UnaryResponse(InterceptedCall):
    def __await__(self) -> Generator[Any, None, Any]:
        call = yield from self._task.__await__()
        return (yield from call.__await__())


class _StreamResponse(InterceptedCall):
    _iterator: Optional[AsyncIterator[Any]] = None
    # The call that the interceptor nearest to the server has returned, or has been given.
    _below: Any = None

    def _as_call(self, returned: Any) -> Any:
        if not isinstance(returned, theirs.Call):
            returned = _Iterated(_Answered(None) if self._below is None else self._below, returned)
        self._below = returned
        return returned

    async def _fetch(self) -> AsyncIterator[Any]:
        async for message in await self._task:
            yield message

    def __aiter__(self) -> AsyncIterator[Any]:
        if self._iterator is None:
            self._iterator = self._fetch()
        return self._iterator

    async def read(self) -> Any:
        """The next message; ``grpc.aio.EOF`` if there are no more."""
        try:
            return await self.__aiter__().__anext__()
        except StopAsyncIteration:
            return EOF


class _StreamRequest(InterceptedCall):
    """Without an iterator of requests, the interceptors get one that has what `write` is given."""

    _queue: Optional[asyncio.Queue[Any]] = None
    _is_half_closed = False
    _END = object()

    def _requests(self, request: Any) -> Any:
        if request is not None:
            return request
        self._queue = asyncio.Queue(maxsize=1)
        return self._written(self._queue)

    async def _written(self, queue: asyncio.Queue[Any]) -> AsyncIterator[Any]:
        while True:
            request = await queue.get()
            if request is self._END:
                return
            yield request

    async def _put(self, request: Any) -> None:
        if self._queue is None:
            raise UsageError(MIXED)
        try:
            call = await asyncio.shield(self._task)
        except (asyncio.CancelledError, AioRpcError) as error:
            if isinstance(error, asyncio.CancelledError) and not self._task.done():
                raise
            raise asyncio.InvalidStateError(_FINISHED) from error
        if call.done():
            raise asyncio.InvalidStateError(_FINISHED)
        put = asyncio.ensure_future(self._queue.put(request))
        ended = asyncio.ensure_future(call.code())
        try:
            await asyncio.wait([put, ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            put.cancel()
            ended.cancel()

    async def write(self, request: Any) -> None:
        """Sends a message."""
        if self._is_half_closed:
            raise asyncio.InvalidStateError(_FINISHED if self.done() else _HALF_CLOSED)
        await self._put(request)
        if self.done():
            raise asyncio.InvalidStateError(_FINISHED)

    async def done_writing(self) -> None:
        """Says that no more messages will be sent."""
        if self._is_half_closed:
            return
        await self._put(self._END)
        self._is_half_closed = True


class InterceptedUnaryUnaryCall(_UnaryResponse):
    _kind = Kind.UNARY


class InterceptedUnaryStreamCall(_StreamResponse):
    _kind = Kind.SERVER_STREAM


class InterceptedStreamUnaryCall(_StreamRequest, _UnaryResponse):
    _kind = Kind.CLIENT_STREAM


class InterceptedStreamStreamCall(_StreamRequest, _StreamResponse):
    _kind = Kind.BIDI


class _Answered:
    """The call in place of which an interceptor has returned a response."""

    def __init__(self, response: Any) -> None:
        self._response = response

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def done(self) -> bool:
        return True

    def add_done_callback(self, _: Callable[[Any], object]) -> None:
        raise NotImplementedError

    def time_remaining(self) -> Optional[float]:
        raise NotImplementedError

    async def initial_metadata(self) -> Any:
        return None

    async def trailing_metadata(self) -> Any:
        return None

    async def code(self) -> Any:
        return code_of(0)

    async def details(self) -> str:
        return ""

    async def debug_error_string(self) -> Optional[str]:
        return None

    async def wait_for_connection(self) -> None: ...

    def __await__(self) -> Generator[Any, None, Any]:
        yield from ()
        return self._response


class _Iterated:
    """A call with another iterator of responses, which an interceptor has returned."""

    def __init__(self, call: Any, responses: Any) -> None:
        self._call = call
        self._responses = responses

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def __aiter__(self) -> AsyncIterator[Any]:
        iterator: AsyncIterator[Any] = self._responses.__aiter__()
        return iterator

    async def read(self) -> Any:
        """The next message; ``grpc.aio.EOF`` if there are no more."""
        try:
            return await self.__aiter__().__anext__()
        except StopAsyncIteration:
            return EOF


INTERCEPTED: Any = {
    Kind.UNARY: InterceptedUnaryUnaryCall,
    Kind.SERVER_STREAM: InterceptedUnaryStreamCall,
    Kind.CLIENT_STREAM: InterceptedStreamUnaryCall,
    Kind.BIDI: InterceptedStreamStreamCall,
}
for _ours, _base in (
    (InterceptedUnaryUnaryCall, theirs.UnaryUnaryCall),
    (InterceptedUnaryStreamCall, theirs.UnaryStreamCall),
    (InterceptedStreamUnaryCall, theirs.StreamUnaryCall),
    (InterceptedStreamStreamCall, theirs.StreamStreamCall),
    (_Answered, theirs.UnaryUnaryCall),
    (_Iterated, theirs.UnaryStreamCall),
    (_Iterated, theirs.StreamStreamCall),
):
    _base.register(_ours)
