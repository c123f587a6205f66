"""Methods: the four kinds of calls with the signatures that generated stubs use, and what makes them."""

from __future__ import annotations

from typing import Any, Iterable, NamedTuple, Optional, Tuple

from . import _call, _raw
from ._arguments import c_string
from ._call import Call, Deserializer, Requests, Serializer
from ._codec import Codec
from ._interceptor import Interceptors, see_objects
from ._metadata import MetadataLike
from ._objects import Raised
from ._options import CallOptions, call_options
from ._reply import CompletedCall, Reply, reply_error
from ._status import StatusCode
from ._verdict import Idempotency, Kind
from ._wait import Waiters


class Method(NamedTuple):
    channel: Caller
    name: bytes
    serializer: Serializer
    deserializer: Deserializer


class _MultiCallable:
    """One method of a channel, to be called any number of times, from any thread.

    Keyword arguments of a call: ``timeout``, seconds until its deadline (None: the channel's, or none);
    ``metadata``, pairs, a mapping or JSON; ``compression``, ``"identity"``, ``"gzip"`` or a member of
    ``grpc.Compression``; ``wait_for_ready``, carried for interceptors (channels do not wait yet); ``credentials``,
    the value of ``authorization`` or header fields as in metadata, for TLS only: without it UNAUTHENTICATED;
    ``interceptors``, for this call only: each an interceptor, or (interceptor, priority), in one order with those of
    the channel and its runtime; ``trace``, how many events the call's trace keeps, the latest, 1 to 65536 (True: 256;
    0 or False: no trace; None: as the channel's options say); ``idempotency``, an `Idempotency`, carried for
    interceptors, which read it as ``hop.idempotency`` (None: UNKNOWN).

    An argument that is not allowed raises TypeError or ValueError (`InvalidArgumentError` is one, too), and no call
    is made.

    Raises `RpcError` if the call ends with another status than OK; `LibraryError` if it could not be made at all
    (ClosedError, InvalidArgumentError, WouldDeadlockError in a callback, ForkedError).
    """

    _kind: Kind

    def __init__(self, method: Method) -> None:
        self._method = method
        self._made_codec: Optional[Codec] = None

    def _codec(self, interceptors: Interceptors) -> Optional[Codec]:
        """Where an interceptor sees objects, and they are not bytes anyway."""
        method = self._method
        if method.serializer is None and method.deserializer is None:
            return None
        if not method.channel._sees_objects and not (interceptors and see_objects(interceptors)):
            return None
        if self._made_codec is None:
            self._made_codec = Codec(method.serializer, method.deserializer)
        return self._made_codec

    def _start(self, *options: Any, codec: Optional[Codec]) -> int:
        """The call's handle. ``options``: those of `call_options`, in its order."""
        return self._method.channel._start(self._method.name, self._kind, call_options(*options, codec=codec))

    def _stream(self, call: int, requests: Optional[Requests], timeout: Optional[float]) -> Call:
        channel = self._method.channel
        return Call(call, requests, self._method.deserializer, timeout, channel._waiters, channel)

    def future(self, *_: Any, **__: Any) -> Any:
        """Not there yet."""
        raise NotImplementedError("futures come with asyncio; run the call on a thread instead")


class UnaryUnary(_MultiCallable):
    """One request, one response."""

    _kind = Kind.UNARY

    def __call__(
        self,
        request: Any,
        timeout: Optional[float] = None,
        metadata: MetadataLike = None,
        credentials: object = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
        interceptors: Interceptors = (),
        *,
        trace: Optional[int] = None,
        idempotency: Optional[Idempotency] = None,
    ) -> Any:
        """Makes the call and returns the response."""
        handle = self._ended(
            request,
            timeout,
            metadata,
            credentials,
            wait_for_ready,
            compression,
            trace,
            idempotency,
            tuple(interceptors),
        )
        if Raised.ever or _raw.penstock_reply_code(handle) != StatusCode.OK.number:
            reply = _good(handle)
            data = _call.body(reply._handle)
        else:
            # The usual end is short: a `Reply` costs more than all that is to be had from it.
            try:
                data = _call.body(handle)
            finally:
                _raw.penstock_reply_release(handle)
        return _call.deserialize(self._method.deserializer, data)

    def with_call(
        self,
        request: Any,
        timeout: Optional[float] = None,
        metadata: MetadataLike = None,
        credentials: object = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
        interceptors: Interceptors = (),
        *,
        trace: Optional[int] = None,
        idempotency: Optional[Idempotency] = None,
    ) -> Tuple[Any, CompletedCall]:
        """Makes the call and returns the response with what else came."""
        handle = self._ended(
            request,
            timeout,
            metadata,
            credentials,
            wait_for_ready,
            compression,
            trace,
            idempotency,
            tuple(interceptors),
        )
        reply = _good(handle)
        response = _call.deserialize(self._method.deserializer, _call.body(reply._handle))
        return response, CompletedCall(reply)

    def _ended(self, request: Any, *options: Any) -> int:
        codec = self._codec(options[-1])
        data = _call.serialize(self._method.serializer, request, codec)
        waiters = self._method.channel._waiters
        with waiters:
            call = self._start(*options, codec=codec)
            try:
                _call.send(waiters, call, data)
                return _call.finish(waiters, call)
            finally:
                # Cancels it, if Ctrl-C or an exception of a callback has come first.
                _raw.penstock_call_release(call)


def _good(handle: int) -> Reply:
    """The reply, which it owns; raised as `RpcError` unless it is OK."""
    reply = Reply(handle)
    if reply.code is not StatusCode.OK:
        raise reply_error(reply)
    return reply


class UnaryStream(_MultiCallable):
    """One request, any number of responses."""

    _kind = Kind.SERVER_STREAM

    def __call__(
        self,
        request: Any,
        timeout: Optional[float] = None,
        metadata: MetadataLike = None,
        credentials: object = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
        interceptors: Interceptors = (),
        *,
        trace: Optional[int] = None,
        idempotency: Optional[Idempotency] = None,
    ) -> Call:
        """Makes the call and returns at once; the responses are iterated over."""
        interceptors = tuple(interceptors)
        codec = self._codec(interceptors)
        data = _call.serialize(self._method.serializer, request, codec)
        handle = self._start(
            timeout,
            metadata,
            credentials,
            wait_for_ready,
            compression,
            trace,
            idempotency,
            interceptors,
            codec=codec,
        )
        call = self._stream(handle, None, timeout)
        if _call.send(call._waiters, handle, data):
            _call.half_close(handle)
        return call


class StreamUnary(_MultiCallable):
    """Any number of requests, one response. An iterator of requests is read on a thread of its own; a list or a tuple
    needs none, where there is room to send it."""

    _kind = Kind.CLIENT_STREAM

    def __call__(
        self,
        request_iterator: Iterable[Any],
        timeout: Optional[float] = None,
        metadata: MetadataLike = None,
        credentials: object = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
        interceptors: Interceptors = (),
        *,
        trace: Optional[int] = None,
        idempotency: Optional[Idempotency] = None,
    ) -> Any:
        """Makes the call and returns the response."""
        call = self._begin(
            request_iterator,
            timeout,
            metadata,
            credentials,
            wait_for_ready,
            compression,
            trace,
            idempotency,
            tuple(interceptors),
        )
        return call.result()

    def with_call(
        self,
        request_iterator: Iterable[Any],
        timeout: Optional[float] = None,
        metadata: MetadataLike = None,
        credentials: object = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
        interceptors: Interceptors = (),
        *,
        trace: Optional[int] = None,
        idempotency: Optional[Idempotency] = None,
    ) -> Tuple[Any, Call]:
        """Makes the call and returns the response with what else came."""
        call = self._begin(
            request_iterator,
            timeout,
            metadata,
            credentials,
            wait_for_ready,
            compression,
            trace,
            idempotency,
            tuple(interceptors),
        )
        return call.result(), call

    def _begin(self, request_iterator: Iterable[Any], timeout: Optional[float], *options: Any) -> Call:
        codec = self._codec(options[-1])
        requests = Requests(request_iterator, self._method.serializer, codec)
        handle = self._start(timeout, *options, codec=codec)
        call = self._stream(handle, requests, timeout)
        _call.begin_sending(call._waiters, handle, requests)
        return call


class StreamStream(StreamUnary):
    """Any number of requests, any number of responses. Requests are read as those of `StreamUnary`."""

    _kind = Kind.BIDI

    def __call__(
        self,
        request_iterator: Iterable[Any],
        timeout: Optional[float] = None,
        metadata: MetadataLike = None,
        credentials: object = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
        interceptors: Interceptors = (),
        *,
        trace: Optional[int] = None,
        idempotency: Optional[Idempotency] = None,
    ) -> Call:
        """Makes the call and returns at once; the responses are iterated over."""
        return self._begin(
            request_iterator,
            timeout,
            metadata,
            credentials,
            wait_for_ready,
            compression,
            trace,
            idempotency,
            tuple(interceptors),
        )


class Caller:
    """What makes calls: a channel, or a hop that makes side calls."""

    @property
    def _waiters(self) -> Waiters:
        raise NotImplementedError

    @property
    def _sees_objects(self) -> bool:
        raise NotImplementedError

    def _start(self, method: bytes, kind: int, options: CallOptions) -> int:
        raise NotImplementedError

    def unary_unary(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
        **_: Any,
    ) -> UnaryUnary:
        """``/package.Service/Method`` with one request and one response. A serializer makes bytes of a request, a
        deserializer a response of bytes; without them, both are bytes."""
        return UnaryUnary(self._bound(method, request_serializer, response_deserializer))

    def unary_stream(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
        **_: Any,
    ) -> UnaryStream:
        """As `unary_unary`, with one request and any number of responses."""
        return UnaryStream(self._bound(method, request_serializer, response_deserializer))

    def stream_unary(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
        **_: Any,
    ) -> StreamUnary:
        """As `unary_unary`, with any number of requests and one response."""
        return StreamUnary(self._bound(method, request_serializer, response_deserializer))

    def stream_stream(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
        **_: Any,
    ) -> StreamStream:
        """As `unary_unary`, with any number of requests and of responses."""
        return StreamStream(self._bound(method, request_serializer, response_deserializer))

    def _bound(self, method: str, serializer: Serializer, deserializer: Deserializer) -> Method:
        return Method(self, c_string(method, "a method"), serializer, deserializer)
