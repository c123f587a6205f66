"""The objects that make calls in blocking style: `Caller`, the base of channels, and the four kinds of methods, with
the signatures that generated stubs use."""

from __future__ import annotations

from contextvars import Context, copy_context
from typing import Any, Optional, Tuple

from .. import _raw
from .._handles.objects import Raised, Uncopied
from .._handles.reply import CompletedCall, Reply, reply_error
from .._handles.status import StatusCode
from .._handles.verdict import Kind
from .blocking import begin_sending
from .call import Call
from .codec import Codec
from .ends import Callbacks, Ends
from .keywords import CallKeywords, RequestArguments, RequestsArguments, takes
from .line import Line
from .messages import Deserializer, Serializer, body, deserialize, serialize
from .method import BoundMethod, Connected
from .options import CallOptions, has_begun, has_ended
from .requests import Requests
from .steps import half_close, send_only
from .wait import Waiters

_OK = StatusCode.OK.number


class _MultiCallable(BoundMethod):
    """A method that is called in blocking style.

    Raises `RpcError` if the call ends with another status than OK; `LibraryError` if it could not be made at all
    (ClosedError, InvalidArgumentError, WouldDeadlockError in a callback, ForkedError).
    """

    _channel: Caller

    def _stream(
        self, keywords: CallKeywords, codec: Optional[Codec], context: Context, requests: Optional[Requests]
    ) -> Call:
        """Makes the call."""
        method, channel = self._method, self._channel
        ends = Ends(channel._callbacks)
        options = self._options(keywords, codec, context, lent=True, over=ends.over)
        call = Call(
            channel._start(method.name, self._kind, options),
            requests,
            method.deserializer,
            keywords.timeout,
            channel,
            context,
            options.lent,
            ends,
            method.serializer,
            codec,
            self._kind,
        )
        has_begun(options)
        return call

    def _with_request(self, call: RequestArguments) -> Call:
        """Makes a call with one request, and returns at once."""
        context = copy_context()
        codec = self._codec(call, context)
        data = serialize(self._method.serializer, call.request, codec, context)
        stream = self._stream(call, codec, context, None)
        if send_only(stream._call, data):
            half_close(stream._call)
        return stream

    def _with_requests(self, call: RequestsArguments) -> Call:
        """Makes a call with any number of requests, and returns at once."""
        context = copy_context()
        codec = self._codec(call, context)
        if call.request_iterator is None:
            return self._stream(call, codec, context, None)
        requests = Requests(call.request_iterator, self._method.serializer, codec, context)
        stream = self._stream(call, codec, context, requests)
        begin_sending(stream._line, requests)
        return stream


class UnaryUnary(_MultiCallable):
    """A method with one request and one response."""

    _kind = Kind.UNARY

    @takes(RequestArguments)
    def __call__(self, call: RequestArguments) -> Any:
        """Makes the call and returns the response."""
        handle = self._ended(call)
        if Raised.ever or _raw.penstock_reply_code(handle) != _OK:
            reply = _good(handle)
            data = body(reply._handle)
        else:
            # A call that ends with OK needs no `Reply` object, which would cost more than the rest of this function.
            try:
                data = body(handle)
            finally:
                _raw.penstock_reply_release(handle)
        return deserialize(self._method.deserializer, data)

    @takes(RequestArguments)
    def with_call(self, call: RequestArguments) -> Tuple[Any, CompletedCall]:
        """Makes the call and returns the response together with the call's headers, trailers and status."""
        reply = _good(self._ended(call))
        response = deserialize(self._method.deserializer, body(reply._handle))
        return response, CompletedCall(reply)

    @takes(RequestArguments)
    def future(self, call: RequestArguments) -> Call:
        """Makes the call and returns at once. `Call.result` gives the response."""
        return self._with_request(call)

    def _ended(self, call: RequestArguments) -> int:
        context = copy_context()
        codec = self._codec(call, context)
        data = serialize(self._method.serializer, call.request, codec, context)
        channel = self._channel
        options = self._options(call, codec, context)
        if isinstance(data, bytes) and not options._has_functions:
            reply = channel._unary(self._method.name, options, data)
            if reply is not None:
                has_ended(options)
                return reply
        with channel._waiters:
            line = channel._start(self._method.name, self._kind, options)
            try:
                has_begun(options)
                send_only(line.handle, data)
                return line.finish()
            except BaseException:
                # The wait was left early, for example by a Ctrl-C or an exception of a callback.
                line.cancel(b"the wait for the call was broken off")
                raise
            finally:
                _raw.penstock_call_release(line.handle)


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
        return self._with_request(call)


class StreamUnary(_MultiCallable):
    """A method with any number of requests and one response. An iterator of requests is read on a thread of its own,
    or in a greenlet. A list or a tuple needs none if there is room to send all of it at once."""

    _kind = Kind.CLIENT_STREAM

    @takes(RequestsArguments)
    def __call__(self, call: RequestsArguments) -> Any:
        """Makes the call and returns the response."""
        return _answer(self._with_requests(call))

    @takes(RequestsArguments)
    def with_call(self, call: RequestsArguments) -> Tuple[Any, Call]:
        """Makes the call and returns the response together with the call's headers, trailers and status."""
        stream = self._with_requests(call)
        return _answer(stream), stream

    @takes(RequestsArguments)
    def future(self, call: RequestsArguments) -> Call:
        """Makes the call and returns at once. `Call.result` gives the response. Without an iterator, `Call.write`
        and `Call.done_writing` send the requests."""
        return self._with_requests(call)


def _answer(call: Call) -> Any:
    try:
        return call.result()
    except BaseException:
        # If a Ctrl-C has ended the wait, nobody waits for this call any more.
        _raw.penstock_call_cancel(call._call, b"Locally cancelled by application!")
        raise


class StreamStream(_MultiCallable):
    """A method with any number of requests and of responses. Requests are read as in `StreamUnary`."""

    _kind = Kind.BIDI

    @takes(RequestsArguments)
    def __call__(self, call: RequestsArguments) -> Call:
        """Makes the call and returns at once. Iterating over the result gives the responses. Without an iterator of
        requests, `Call.write` and `Call.done_writing` send them."""
        return self._with_requests(call)


class Caller(Connected, Uncopied):
    """The base of the objects that make calls: `Channel` and `SideChannel`."""

    @property
    def _waiters(self) -> Waiters:
        raise NotImplementedError

    @property
    def _callbacks(self) -> Callbacks:
        """The thread for the callbacks of running calls."""
        raise NotImplementedError

    def _start(self, method: bytes, kind: Kind, options: CallOptions) -> Line:
        """Makes a call, whose handle the caller releases."""
        raise NotImplementedError

    def _unary(self, method: bytes, options: CallOptions, data: bytes) -> Optional[int]:
        """Makes a whole unary call, and returns its ``penstock_reply *``. None: no call was made, because this call
        has to be made step by step. That holds for a call with synchronous interceptors: Ctrl-C then ends its wait at
        once, although their functions have not returned."""
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
