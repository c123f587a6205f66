"""The objects that make calls on an event loop, with the signatures that generated stubs use."""

from __future__ import annotations

from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

from .. import _raw
from .._calls.codec import Codec
from .._calls.keywords import CallKeywords, RequestArguments, takes
from .._calls.messages import Deserializer, Sent, Serializer, serialize
from .._calls.method import BoundMethod, Connected, Method
from .._calls.options import CallOptions, has_begun
from .._handles.objects import Uncopied
from .._handles.verdict import Kind
from .calls import StreamStreamCall, StreamUnaryCall, UnaryCall, UnaryStreamCall
from .driver import Group
from .requests import AsyncRequests, RequestIterable
from .running import SHAPES, Running


@dataclass(eq=False, repr=False)
class _AsyncRequests:
    request_iterator: RequestIterable = None


@dataclass(eq=False, repr=False)
class AsyncRequestsArguments(CallKeywords, _AsyncRequests):
    """The arguments of a call with any number of requests."""


class MultiCallable(BoundMethod):
    """A method whose calls run on an event loop. Calling it makes the call and returns at once."""

    _channel: Caller

    def __init__(self, channel: Connected, method: Method) -> None:
        super().__init__(channel, method)
        self._name = method.name.decode()
        self._shape = SHAPES[self._kind]
        # The options of calls that have a timeout at most, by that timeout.
        self._plain: Dict[Optional[float], CallOptions] = {}

    def _make(self, keywords: CallKeywords, codec: Optional[Codec], context: Context) -> Running:
        channel = self._channel
        options = self._options(keywords, codec, context, lent=True)
        running = Running(channel._group, self._name, self._shape)
        running.lent = options.lent
        channel._begin(running, self._method.name, options)
        has_begun(options)
        return running

    def plainly(self, request: Any, timeout: Optional[float]) -> Optional[Tuple[Running, Context]]:
        """What `with_request` does for a call without other arguments, at less cost. None: the call may have
        callbacks or a codec."""
        channel = self._channel
        if type(timeout) not in _TIMES or channel._calls_back or channel._sees_objects:
            return None
        options = self._plain.get(timeout)
        if options is None:
            if len(self._plain) >= _KEPT:
                self._plain.clear()
            keywords = CallKeywords(timeout=timeout)
            options = self._plain[timeout] = self._options(keywords, None, _NO_CONTEXT)
        context = copy_context()
        data = serialize(self._method.serializer, request, None, context)
        running = Running(channel._group, self._name, self._shape)
        channel._begin(running, self._method.name, options)
        _send_only(running, data)
        return running, context

    def with_request(self, call: RequestArguments) -> Tuple[Running, Context]:
        context = copy_context()
        codec = self._codec(call, context)
        data = serialize(self._method.serializer, call.request, codec, context)
        running = self._make(call, codec, context)
        _send_only(running, data)
        return running, context

    def with_requests(self, call: AsyncRequestsArguments, made: Any) -> Any:
        """Makes the call, as an object of the class ``made``, and begins to send its requests."""
        context = copy_context()
        codec = self._codec(call, context)
        requests = AsyncRequests(self._method.serializer, codec, context)
        running = self._make(call, codec, context)
        stream = made(running, self._method.deserializer, call.timeout, self._channel, context)
        stream._requests = requests
        if call.request_iterator is not None:
            stream._is_read = True
            # The task sends the requests without waiting for a message of the response.
            _raw.penstock_call_promise_half_close(running.call)
            requests.begin(running, call.request_iterator)
        return stream


# The types of a timeout that are kept, and how many of them.
_TIMES = (type(None), float, int)
_KEPT = 64
_NO_CONTEXT = Context()


def _send_only(running: Running, data: Sent) -> None:
    """Sends the only request, for which there is room, and half-closes."""
    try:
        running.try_send(data)
    except BaseException:
        running.cancel("the request can't be sent")
        raise
    running.half_close()


class UnaryUnary(MultiCallable):
    """A method with one request and one response."""

    _kind = Kind.UNARY

    def _plainly(self, request: Any, timeout: Optional[float] = None) -> Optional[UnaryCall]:
        made = self.plainly(request, timeout)
        if made is None:
            return None
        return UnaryCall(made[0], self._method.deserializer, timeout, self._channel, made[1])

    @takes(RequestArguments, plain=_plainly)
    def __call__(self, call: RequestArguments) -> UnaryCall:
        """Makes the call and returns at once. Await the result for the response."""
        running, context = self.with_request(call)
        return UnaryCall(running, self._method.deserializer, call.timeout, self._channel, context)


class UnaryStream(MultiCallable):
    """A method with one request and any number of responses."""

    _kind = Kind.SERVER_STREAM

    @takes(RequestArguments)
    def __call__(self, call: RequestArguments) -> UnaryStreamCall:
        """Makes the call and returns at once. ``async for`` over the result gives the responses."""
        running, context = self.with_request(call)
        return UnaryStreamCall(running, self._method.deserializer, call.timeout, self._channel, context)


class StreamUnary(MultiCallable):
    """A method with any number of requests and one response. An iterable of requests, asynchronous or not, is read by
    a task; without one, the requests are sent by `write`."""

    _kind = Kind.CLIENT_STREAM

    @takes(AsyncRequestsArguments)
    def __call__(self, call: AsyncRequestsArguments) -> StreamUnaryCall:
        """Makes the call and returns at once. Await the result for the response."""
        made: StreamUnaryCall = self.with_requests(call, StreamUnaryCall)
        return made


class StreamStream(MultiCallable):
    """A method with any number of requests and of responses. Requests are sent as in `StreamUnary`."""

    _kind = Kind.BIDI

    @takes(AsyncRequestsArguments)
    def __call__(self, call: AsyncRequestsArguments) -> StreamStreamCall:
        """Makes the call and returns at once. ``async for`` over the result gives the responses."""
        made: StreamStreamCall = self.with_requests(call, StreamStreamCall)
        return made


class Caller(Connected, Uncopied):
    """The base of the objects that make calls on an event loop."""

    _group: Group

    def _begin(self, running: Running, method: bytes, options: CallOptions) -> None:
        """Makes the call of ``running``."""
        raise NotImplementedError

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
        return UnaryUnary(self, self._bound(method, request_serializer, response_deserializer))

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
        return UnaryStream(self, self._bound(method, request_serializer, response_deserializer))

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
        return StreamUnary(self, self._bound(method, request_serializer, response_deserializer))

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
        return StreamStream(self, self._bound(method, request_serializer, response_deserializer))
