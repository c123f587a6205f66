"""Methods: the four kinds of calls, with the signatures that generated stubs use; and `Caller`, the base of the
objects that make calls."""

from __future__ import annotations

from contextvars import Context, copy_context
from typing import Any, NamedTuple, Optional, Protocol, Tuple

from . import _call, _raw
from ._arguments import c_string
from ._call import Call, Deserializer, Requests, Serializer
from ._codec import Codec
from ._encoding import Codec as Encoding
from ._keywords import CallKeywords, Interceptors, RequestArguments, RequestsArguments, takes
from ._objects import Objects, Raised, Uncopied
from ._options import CallOptions, call_options, has_begun
from ._reply import CompletedCall, Reply, reply_error
from ._status import StatusCode
from ._verdict import Kind
from ._wait import Waiters


class Method(NamedTuple):
    channel: Caller
    name: bytes
    serializer: Serializer
    deserializer: Deserializer
    # The name of the encoding, if the channel has a codec; "" is the usual one.
    subtype: Optional[str] = None


class _MultiCallable:
    """One method of a channel, to be called any number of times, from any thread.

    A wrong argument raises TypeError or ValueError (`InvalidArgumentError` is a ValueError), and no call is made.

    Raises `RpcError` if the call ends with another status than OK; `LibraryError` if it could not be made at all
    (ClosedError, InvalidArgumentError, WouldDeadlockError in a callback, ForkedError).
    """

    _kind: Kind

    def __init__(self, method: Method) -> None:
        self._method = method

    def _codec(self, keywords: CallKeywords, context: Context) -> Optional[Codec]:
        """The codec of a call; None if no interceptor sees objects, or if the method has no serializers."""
        method = self._method
        if method.serializer is None and method.deserializer is None:
            return None
        if not method.channel._sees_objects and not (keywords.interceptors and keywords.sees_objects):
            return None
        return Codec(method.serializer, method.deserializer, context, method.subtype)

    def _options(
        self, keywords: CallKeywords, codec: Optional[Codec], context: Context, lent: bool = False
    ) -> CallOptions:
        """The options of a call. Only a call with callbacks, or with a codec, has its context there, because options
        with a context can't be kept for other calls."""
        if keywords.content_subtype is None:
            keywords.content_subtype = self._method.subtype
        channel = self._method.channel
        has_context = codec is not None or bool(keywords.interceptors) or channel._calls_back
        options = call_options(keywords, codec, context if has_context else None, lent, channel._keeps)
        if keywords.interceptors:
            channel._register(options, keywords.interceptors)
        return options

    def _stream(
        self, keywords: CallKeywords, codec: Optional[Codec], context: Context, requests: Optional[Requests]
    ) -> Call:
        """Makes the call."""
        method, channel = self._method, self._method.channel
        options = self._options(keywords, codec, context, lent=True)
        call = channel._start(method.name, self._kind, options)
        waiters, lent = channel._waiters, options.lent
        stream = Call(call, requests, method.deserializer, keywords.timeout, waiters, channel, context, lent)
        has_begun(options)
        return stream

    def future(self, *_: Any, **__: Any) -> Any:
        """Futures are not supported yet."""
        raise NotImplementedError("futures come with asyncio; run the call on a thread instead")


class UnaryUnary(_MultiCallable):
    """A method with one request and one response."""

    _kind = Kind.UNARY

    @takes(RequestArguments)
    def __call__(self, call: RequestArguments) -> Any:
        """Makes the call and returns the response."""
        handle = self._ended(call)
        if Raised.ever or _raw.penstock_reply_code(handle) != StatusCode.OK.number:
            reply = _good(handle)
            data = _call.body(reply._handle)
        else:
            # A call that ends with OK needs no `Reply` object, which would cost more than the rest of this function.
            try:
                data = _call.body(handle)
            finally:
                _raw.penstock_reply_release(handle)
        return _call.deserialize(self._method.deserializer, data)

    @takes(RequestArguments)
    def with_call(self, call: RequestArguments) -> Tuple[Any, CompletedCall]:
        """Makes the call and returns the response together with the call's headers, trailers and status."""
        reply = _good(self._ended(call))
        response = _call.deserialize(self._method.deserializer, _call.body(reply._handle))
        return response, CompletedCall(reply)

    def _ended(self, call: RequestArguments) -> int:
        context = copy_context()
        codec = self._codec(call, context)
        data = _call.serialize(self._method.serializer, call.request, codec, context)
        channel = self._method.channel
        options = self._options(call, codec, context)
        if isinstance(data, bytes) and not call.interceptors:
            reply = channel._unary(self._method.name, options, data)
            if reply is not None:
                has_begun(options)
                return reply
        waiters = channel._waiters
        with waiters:
            handle = channel._start(self._method.name, self._kind, options)
            try:
                has_begun(options)
                _call.send(waiters, handle, data)
                return _call.finish(waiters, handle)
            finally:
                # If the wait was left early, by a Ctrl-C or an exception of a callback, this release cancels the
                # call.
                _raw.penstock_call_release(handle)


def _good(handle: int) -> Reply:
    """Makes a `Reply`, which owns the handle. RpcError: the status is not OK."""
    reply = Reply(handle)
    if reply.code is not StatusCode.OK:
        raise reply_error(reply)
    return reply


class UnaryStream(_MultiCallable):
    """A method with one request and any number of responses."""

    _kind = Kind.SERVER_STREAM

    @takes(RequestArguments)
    def __call__(self, call: RequestArguments) -> Call:
        """Makes the call and returns at once. Iterating over the result gives the responses."""
        context = copy_context()
        codec = self._codec(call, context)
        data = _call.serialize(self._method.serializer, call.request, codec, context)
        stream = self._stream(call, codec, context, None)
        if _call.send(stream._waiters, stream._call, data):
            _call.half_close(stream._call)
        return stream


class StreamUnary(_MultiCallable):
    """A method with any number of requests and one response. An iterator of requests is read on a thread of its own.
    A list or a tuple needs no thread if there is room to send all of it at once."""

    _kind = Kind.CLIENT_STREAM

    @takes(RequestsArguments)
    def __call__(self, call: RequestsArguments) -> Any:
        """Makes the call and returns the response."""
        return self._begin(call).result()

    @takes(RequestsArguments)
    def with_call(self, call: RequestsArguments) -> Tuple[Any, Call]:
        """Makes the call and returns the response together with the call's headers, trailers and status."""
        stream = self._begin(call)
        return stream.result(), stream

    def _begin(self, call: RequestsArguments) -> Call:
        context = copy_context()
        codec = self._codec(call, context)
        requests = Requests(call.request_iterator, self._method.serializer, codec, context)
        stream = self._stream(call, codec, context, requests)
        _call.begin_sending(stream._waiters, stream._call, requests)
        return stream


class StreamStream(StreamUnary):
    """A method with any number of requests and of responses. Requests are read as in `StreamUnary`."""

    _kind = Kind.BIDI

    @takes(RequestsArguments)
    def __call__(self, call: RequestsArguments) -> Call:
        """Makes the call and returns at once. Iterating over the result gives the responses."""
        return self._begin(call)


class ChannelLike(Protocol):
    """The part of `Channel` that `Hop.set_channel` uses."""

    target: str
    _handle: int


class Caller(Uncopied):
    """The base of the objects that make calls: `Channel` and `SideChannel`."""

    # The codec whose functions replace the serializers of each method; None: they stay.
    _encoding: Optional[Encoding] = None

    @property
    def _waiters(self) -> Waiters:
        raise NotImplementedError

    @property
    def _calls_back(self) -> bool:
        """Whether a call may have callbacks that are Python functions, besides those of its own interceptors."""
        raise NotImplementedError

    @property
    def _keeps(self) -> Tuple[Objects, ...]:
        """The objects that a running call keeps."""
        raise NotImplementedError

    @property
    def _sees_objects(self) -> bool:
        raise NotImplementedError

    def _register(self, options: CallOptions, interceptors: Interceptors) -> None:
        """Registers the interceptors of one call on its options."""
        raise NotImplementedError

    def _start(self, method: bytes, kind: int, options: CallOptions) -> int:
        raise NotImplementedError

    def _unary(self, method: bytes, options: CallOptions, data: bytes) -> Optional[int]:
        """Makes a whole unary call, and returns its ``penstock_reply *``. None: no call was made, because this call
        has to be made step by step. That holds for a call with interceptors: Ctrl-C then ends its wait at once, even
        if an interceptor holds the end of the call."""
        return None

    def unary_unary(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
        **_: Any,
    ) -> UnaryUnary:
        """The method ``/package.Service/Method``, with one request and one response. The serializer turns a request
        into bytes, the deserializer turns bytes into a response; without them requests and responses are bytes."""
        return UnaryUnary(self._bound(method, request_serializer, response_deserializer))

    def unary_stream(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
        **_: Any,
    ) -> UnaryStream:
        """The method ``/package.Service/Method``, with one request and any number of responses. The arguments are
        those of `unary_unary`."""
        return UnaryStream(self._bound(method, request_serializer, response_deserializer))

    def stream_unary(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
        **_: Any,
    ) -> StreamUnary:
        """The method ``/package.Service/Method``, with any number of requests and one response. The arguments are
        those of `unary_unary`."""
        return StreamUnary(self._bound(method, request_serializer, response_deserializer))

    def stream_stream(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
        **_: Any,
    ) -> StreamStream:
        """The method ``/package.Service/Method``, with any number of requests and responses. The arguments are those
        of `unary_unary`."""
        return StreamStream(self._bound(method, request_serializer, response_deserializer))

    def _bound(self, method: str, serializer: Serializer, deserializer: Deserializer) -> Method:
        name = c_string(method, "a method")
        encoding = self._encoding
        if encoding is None:
            return Method(self, name, serializer, deserializer)
        return Method(
            self, name, encoding._serializer(serializer), encoding._deserializer(deserializer), encoding.name
        )
