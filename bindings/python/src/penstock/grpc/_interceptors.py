"""grpcio's client interceptors: in front of any channel (`intercept_channel`), and on a live channel of this package,
with a priority."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Any, Callable, Collection, Dict, List, Mapping, NamedTuple, Optional, Tuple, Type

from ._names import (
    Call,
    Channel,
    ClientCallDetails,
    Future,
    RpcError,
    StatusCode,
    StreamStreamClientInterceptor,
    StreamStreamMultiCallable,
    StreamUnaryClientInterceptor,
    StreamUnaryMultiCallable,
    UnaryStreamClientInterceptor,
    UnaryStreamMultiCallable,
    UnaryUnaryClientInterceptor,
    UnaryUnaryMultiCallable,
)


class _Fields(NamedTuple):
    method: Any
    timeout: Optional[float]
    metadata: Any
    credentials: Any
    wait_for_ready: Optional[bool]
    compression: Any


class _Details(_Fields, ClientCallDetails):
    """A call that is about to be made."""


def _merged(details: Any, default: _Details) -> Tuple[Any, Dict[str, Any]]:
    """The method and the keywords in an interceptor's details, which may lack some."""
    values = {name: getattr(details, name, getattr(default, name)) for name in _Fields._fields}
    return values.pop("method"), values


# ---- The results of a continuation ----


class _FailureOutcome(RpcError, Future, Call):  # noqa: N818
    """A call in which an interceptor, or the code below it, has raised."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def initial_metadata(self) -> None:
        return None

    def trailing_metadata(self) -> None:
        return None

    def code(self) -> StatusCode:
        return StatusCode.INTERNAL

    def details(self) -> str:
        return "Exception raised while intercepting the RPC"

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def is_active(self) -> bool:
        return False

    def time_remaining(self) -> Optional[float]:
        return None

    def running(self) -> bool:
        return False

    def done(self) -> bool:
        return True

    def result(self, timeout: Optional[float] = None) -> Any:
        raise self._error

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        return self._error

    def traceback(self, timeout: Optional[float] = None) -> Optional[TracebackType]:
        return self._error.__traceback__

    def add_callback(self, callback: Callable[[], Any]) -> bool:
        return False

    def add_done_callback(self, fn: Callable[[Any], Any]) -> None:
        fn(self)

    def __iter__(self) -> _FailureOutcome:
        return self

    def __next__(self) -> Any:
        raise self._error

    def next(self) -> Any:
        raise self._error


class _UnaryOutcome(Call, Future):
    """A call that has ended with a response."""

    def __init__(self, response: Any, call: Any) -> None:
        self._response = response
        self._call = call

    def initial_metadata(self) -> Any:
        return self._call.initial_metadata()

    def trailing_metadata(self) -> Any:
        return self._call.trailing_metadata()

    def code(self) -> Any:
        return self._call.code()

    def details(self) -> Any:
        return self._call.details()

    def is_active(self) -> bool:
        return bool(self._call.is_active())

    def time_remaining(self) -> Optional[float]:
        remaining: Optional[float] = self._call.time_remaining()
        return remaining

    def cancel(self) -> bool:
        return bool(self._call.cancel())

    def add_callback(self, callback: Callable[[], Any]) -> bool:
        return bool(self._call.add_callback(callback))

    def cancelled(self) -> bool:
        return False

    def running(self) -> bool:
        return False

    def done(self) -> bool:
        return True

    def result(self, timeout: Optional[float] = None) -> Any:
        return self._response

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        return None

    def traceback(self, timeout: Optional[float] = None) -> Optional[TracebackType]:
        return None

    def add_done_callback(self, fn: Callable[[Any], Any]) -> None:
        fn(self)


# ---- Methods ----

# Makes the next method on the way to the server, of the given name.
Thunk = Callable[[Any], Any]


class _Intercepted:
    """A method with one interceptor in front of it."""

    def __init__(self, thunk: Thunk, method: Any, intercept: Callable[[Any, Any, Any], Any]) -> None:
        self._thunk = thunk
        self._method = method
        self._intercept = intercept

    def _details(
        self,
        timeout: Optional[float] = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
    ) -> _Details:
        return _Details(self._method, timeout, metadata, credentials, wait_for_ready, compression)

    def _wait(self, request: Any, details: _Details) -> Tuple[Any, Any]:
        """Makes a call with one response, and waits for it."""

        def continuation(changed: Any, request: Any) -> Any:
            method, keywords = _merged(changed, details)
            try:
                response, call = self._thunk(method).with_call(request, **keywords)
            except RpcError as error:
                return error
            except Exception as error:
                return _FailureOutcome(error)
            return _UnaryOutcome(response, call)

        call = self._intercept(continuation, details, request)
        return call.result(), call

    def _begin(self, request: Any, details: _Details, make: Callable[[Any], Callable[..., Any]]) -> Any:
        """Makes a call that goes on."""

        def continuation(changed: Any, request: Any) -> Any:
            method, keywords = _merged(changed, details)
            return make(self._thunk(method))(request, **keywords)

        try:
            return self._intercept(continuation, details, request)
        except Exception as error:
            return _FailureOutcome(error)


def _itself(method: Any) -> Any:
    return method


def _future(method: Any) -> Any:
    return method.future


class _UnaryUnary(_Intercepted, UnaryUnaryMultiCallable):
    def __call__(self, request: Any, *arguments: Any, **keywords: Any) -> Any:
        return self._wait(request, self._details(*arguments, **keywords))[0]

    def with_call(self, request: Any, *arguments: Any, **keywords: Any) -> Tuple[Any, Any]:
        return self._wait(request, self._details(*arguments, **keywords))

    def future(self, request: Any, *arguments: Any, **keywords: Any) -> Any:
        return self._begin(request, self._details(*arguments, **keywords), _future)


class _UnaryStream(_Intercepted, UnaryStreamMultiCallable):
    def __call__(self, request: Any, *arguments: Any, **keywords: Any) -> Any:
        return self._begin(request, self._details(*arguments, **keywords), _itself)


class _StreamUnary(_Intercepted, StreamUnaryMultiCallable):
    def __call__(self, request_iterator: Any, *arguments: Any, **keywords: Any) -> Any:
        return self._wait(request_iterator, self._details(*arguments, **keywords))[0]

    def with_call(self, request_iterator: Any, *arguments: Any, **keywords: Any) -> Tuple[Any, Any]:
        return self._wait(request_iterator, self._details(*arguments, **keywords))

    def future(self, request_iterator: Any, *arguments: Any, **keywords: Any) -> Any:
        return self._begin(request_iterator, self._details(*arguments, **keywords), _future)


class _StreamStream(_Intercepted, StreamStreamMultiCallable):
    def __call__(self, request_iterator: Any, *arguments: Any, **keywords: Any) -> Any:
        return self._begin(request_iterator, self._details(*arguments, **keywords), _itself)


class _Family(NamedTuple):
    """One kind of call: the class of its interceptors, their method, and the class of intercepted methods."""

    base: type
    intercept: str
    made: Type[_Intercepted]


FAMILIES: Dict[str, _Family] = {
    "unary_unary": _Family(UnaryUnaryClientInterceptor, "intercept_unary_unary", _UnaryUnary),
    "unary_stream": _Family(UnaryStreamClientInterceptor, "intercept_unary_stream", _UnaryStream),
    "stream_unary": _Family(StreamUnaryClientInterceptor, "intercept_stream_unary", _StreamUnary),
    "stream_stream": _Family(StreamStreamClientInterceptor, "intercept_stream_stream", _StreamStream),
}


def kinds_of(interceptor: object) -> List[str]:
    """The kinds of calls for which ``interceptor``, one of grpcio's, is; empty: it is none of grpcio's."""
    return [kind for kind, family in FAMILIES.items() if isinstance(interceptor, family.base)]


def _in_front(kind: str, interceptor: Any, thunk: Thunk, method: Any) -> Any:
    """The method ``thunk(method)``, behind the interceptor if it is for this kind."""
    family = FAMILIES[kind]
    if not isinstance(interceptor, family.base):
        return thunk(method)
    return family.made(thunk, method, getattr(interceptor, family.intercept))


# ---- In front of a channel ----


class _InterceptedChannel(Channel):
    """A channel with one interceptor in front of it. It shares its connections, and closes it."""

    def __init__(self, channel: Any, interceptor: Any) -> None:
        self._channel = channel
        self._interceptor = interceptor

    def subscribe(self, callback: Callable[[Any], Any], try_to_connect: Optional[bool] = False) -> None:
        self._channel.subscribe(callback, try_to_connect=try_to_connect)

    def unsubscribe(self, callback: Callable[[Any], Any]) -> None:
        self._channel.unsubscribe(callback)

    def _method(self, kind: str, method: Any, *rest: Any) -> Any:
        return _in_front(kind, self._interceptor, lambda name: getattr(self._channel, kind)(name, *rest), method)

    def unary_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: Optional[bool] = False,
    ) -> Any:
        return self._method("unary_unary", method, request_serializer, response_deserializer)

    def unary_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: Optional[bool] = False,
    ) -> Any:
        return self._method("unary_stream", method, request_serializer, response_deserializer)

    def stream_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: Optional[bool] = False,
    ) -> Any:
        return self._method("stream_unary", method, request_serializer, response_deserializer)

    def stream_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: Optional[bool] = False,
    ) -> Any:
        return self._method("stream_stream", method, request_serializer, response_deserializer)

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> _InterceptedChannel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def intercept_channel(channel: Channel, *interceptors: Any) -> Channel:
    """``channel`` with the interceptors in front of it; the first one sees a call first. TypeError: one is none of
    grpcio's four kinds; those of penstock are added by `Channel.add_interceptor`."""
    for interceptor in reversed(interceptors):
        if not kinds_of(interceptor):
            raise TypeError(
                "interceptor must be grpc.UnaryUnaryClientInterceptor or grpc.UnaryStreamClientInterceptor or "
                f"grpc.StreamUnaryClientInterceptor or grpc.StreamStreamClientInterceptor, not {interceptor!r}"
            )
        channel = _InterceptedChannel(channel, interceptor)
    return channel


# ---- On a live channel ----


class AddedInterceptor:
    """An interceptor of grpcio's on a live channel. It sees the calls that are made while it is there, also by
    methods that were made before."""

    def __init__(self, added: Added, interceptor: Any, priority: int, kinds: Collection[Any]) -> None:
        self._added = added
        self.interceptor = interceptor
        self.kinds = kinds
        # A higher one sees a call earlier. It can be set.
        self.priority = priority

    def remove(self) -> None:
        """Removes the interceptor: no call that is made later meets it. Does nothing the second time."""
        with contextlib.suppress(ValueError):
            self._added.all.remove(self)

    def __enter__(self) -> AddedInterceptor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


class Added:
    """The interceptors of grpcio's on a live channel. Safe on any thread without a lock: each step is one list
    operation."""

    def __init__(self, at_first: Optional[Mapping[Any, List[Any]]] = None) -> None:
        # In the order in which they were added.
        self.all: List[AddedInterceptor] = []
        # For each kind those with which the channel was made; their priority is 0.
        self.at_first = at_first or {}

    def add(self, interceptor: Any, priority: int, kinds: Collection[Any]) -> AddedInterceptor:
        """Adds an interceptor for these kinds of calls."""
        one = AddedInterceptor(self, interceptor, priority, kinds)
        self.all.append(one)
        return one

    def of(self, kind: Any) -> List[Any]:
        """The interceptors that are there now for a kind of call; the first sees a call first."""
        at_first = self.at_first.get(kind, ())
        if not self.all:
            return list(at_first)
        in_order = sorted(self.all, key=lambda one: -one.priority)
        above = [one.interceptor for one in in_order if kind in one.kinds and one.priority > 0]
        return [*above, *at_first, *(one.interceptor for one in in_order if kind in one.kinds and one.priority <= 0)]

    def method(self, kind: str, made: Thunk, method: Any) -> Any:
        """The method with all interceptors that are there now in front of it."""
        thunk = made
        for interceptor in reversed(self.of(kind)):
            thunk = _behind(kind, interceptor, thunk)
        return thunk(method)


def _behind(kind: str, interceptor: Any, thunk: Thunk) -> Thunk:
    return lambda method: _in_front(kind, interceptor, thunk, method)
