"""The four kinds of methods, with grpcio's signatures."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Iterator, NamedTuple, NoReturn, Optional, Tuple

from .._calls.call import Call as Running
from .._channels.channel import Channel
from .._handles.errors import ClosedError
from .._handles.reply import RpcError as CoreError
from ._calls import _InactiveRpcError, inactive, rendezvous
from ._credentials import ChannelSecrets
from ._interceptors import Added
from ._metadata import InvalidMetadata, outgoing
from ._names import (
    CallCredentials,
    Compression,
    StreamStreamMultiCallable,
    StreamUnaryMultiCallable,
    UnaryStreamMultiCallable,
    UnaryUnaryMultiCallable,
    compression_name,
)
from ._outcomes import INVALID_METADATA, NOT_SERIALIZED, UNPROTECTED, Outcome, outcome_of
from ._plugins import LAST, Authenticate, Unprotected, authentication

Serializer = Optional[Callable[[Any], bytes]]
Deserializer = Optional[Callable[[bytes], Any]]


class Place(NamedTuple):
    """The channel of a method, as its calls need it."""

    channel: Channel
    secrets: ChannelSecrets
    # The beginning of the URLs of its services.
    url: str
    # The interceptors of grpcio's that have been added to it.
    added: Added


class _Refused(Exception):  # noqa: N818
    """A call that ends before it is made."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


class _Method:
    """A method of a channel: its name, and what its calls have in common."""

    _kind: str

    def __init__(self, place: Place, method: Any, serializer: Serializer, deserializer: Deserializer) -> None:
        # As grpcio does, AttributeError for what is neither str nor bytes.
        name: str = method.decode() if isinstance(method, bytes) else method.encode().decode()
        self._place = place
        self._serializers = serializer, deserializer
        self._given = method
        self._has_serializer = serializer is not None
        path = name if name.startswith("/") else f"/{name}"
        self._path = path
        deserialize = None if deserializer is None else _never_none(deserializer)
        self._core = getattr(place.channel, self._kind)(path, serializer, deserialize)

    def _behind(self) -> Any:
        """The method with the interceptors of grpcio's in front of it that are there now."""
        place = self._place._replace(added=Added())
        make = type(self)
        return self._place.added.method(
            self._kind, lambda method: make(place, method, *self._serializers), self._given
        )

    def _keywords(
        self,
        timeout: Optional[float],
        metadata: Any,
        credentials: Optional[CallCredentials],
        wait_for_ready: Optional[bool],
        compression: Optional[Compression],
    ) -> Tuple[Dict[str, Any], Optional[Authenticate]]:
        """The keywords of the core's call. `_Refused`: the call ends at once."""
        keywords: Dict[str, Any] = {"timeout": timeout}
        if compression is not None:
            keywords["compression"] = compression_name(compression)
        if wait_for_ready is not None:
            keywords["wait_for_ready"] = wait_for_ready
        if metadata:
            try:
                keywords["metadata"] = outgoing(metadata)
            except InvalidMetadata:
                raise _Refused(INVALID_METADATA) from None
        try:
            authenticate = authentication(self._place.secrets, credentials, self._place.url, self._path)
        except Unprotected:
            raise _Refused(UNPROTECTED) from None
        if authenticate is not None:
            keywords["interceptors"] = [(authenticate, LAST)]
        return keywords, authenticate

    def _checked(self, request: Any) -> None:
        """As grpcio does without a serializer: `_InactiveRpcError` for None, TypeError for anything but bytes."""
        if self._has_serializer or isinstance(request, bytes):
            return
        if request is None:
            raise _InactiveRpcError(NOT_SERIALIZED)
        raise TypeError(f"Argument 'message' has incorrect type (expected bytes, got {type(request).__name__})")

    def _running(self, make: Callable[..., Running], request: Any, *given: Any) -> Any:
        """Makes a call that goes on; ``given`` are the arguments of `_keywords`."""
        until = None if given[0] is None else time.monotonic() + given[0]
        try:
            keywords, authenticate = self._keywords(*given)
            call = make(request, **keywords)
        except _Refused as refused:
            return rendezvous._over(refused.outcome)
        except CoreError as error:
            raise inactive(error) from error.__cause__
        except ClosedError as error:
            raise ValueError("Cannot invoke RPC: Channel closed!") from error
        return rendezvous(call, until, _cause_of(authenticate))

    def _blocking(self, make: Callable[..., Any], request: Any, *given: Any) -> Any:
        """Makes a call and waits for its end."""
        authenticate = None
        try:
            keywords, authenticate = self._keywords(*given)
            return make(request, **keywords)
        except _Refused as refused:
            raise _InactiveRpcError(refused.outcome) from None
        except CoreError as error:
            _raise(inactive(error, _cause_of(authenticate)()))
        except ClosedError as error:
            raise ValueError("Cannot invoke RPC on closed channel!") from error


def _raise(error: _InactiveRpcError) -> NoReturn:
    raise error from error.__cause__


def _cause_of(authenticate: Optional[Authenticate]) -> Callable[[], Optional[BaseException]]:
    return lambda: None if authenticate is None else authenticate.raised


def _never_none(deserializer: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def deserialize(data: bytes) -> Any:
        response = deserializer(data)
        if response is None:
            raise TypeError(f"the deserializer {deserializer!r} has returned None")
        return response

    return deserialize


# ---- The arguments ----


def _one(entry: Callable[..., Any]) -> Callable[..., Any]:
    """The signature of a call with one request, which goes through the interceptors that have been added."""

    def call(
        self: Any,
        request: Any,
        timeout: Optional[float] = None,
        metadata: Any = None,
        credentials: Optional[CallCredentials] = None,
        wait_for_ready: Optional[bool] = None,
        compression: Optional[Compression] = None,
    ) -> Any:
        given = timeout, metadata, credentials, wait_for_ready, compression
        if self._place.added.all:
            return getattr(self._behind(), entry.__name__)(request, *given)
        self._checked(request)
        return entry(self, request, *given)

    return _named(call, entry)


def _many(entry: Callable[..., Any]) -> Callable[..., Any]:
    """The signature of a call with a stream of requests, which goes through the interceptors that have been added."""

    def call(
        self: Any,
        request_iterator: Any,
        timeout: Optional[float] = None,
        metadata: Any = None,
        credentials: Optional[CallCredentials] = None,
        wait_for_ready: Optional[bool] = None,
        compression: Optional[Compression] = None,
    ) -> Any:
        given = timeout, metadata, credentials, wait_for_ready, compression
        if self._place.added.all:
            return getattr(self._behind(), entry.__name__)(request_iterator, *given)
        # The core also takes lists, as grpcio does not.
        requests = request_iterator if hasattr(request_iterator, "__next__") else _no_iterator(request_iterator)
        return entry(self, requests, *given)

    return _named(call, entry)


def _named(call: Callable[..., Any], entry: Callable[..., Any]) -> Callable[..., Any]:
    """``call`` with the name and the words of ``entry``, and with its own signature."""
    call.__name__, call.__qualname__, call.__doc__ = entry.__name__, entry.__qualname__, entry.__doc__
    return call


def _no_iterator(given: Any) -> Iterator[Any]:
    yield next(given)


# ---- The methods ----


class UnaryUnary(_Method, UnaryUnaryMultiCallable):
    """A method with one request and one response."""

    _kind = "unary_unary"

    @_one
    def __call__(self, request: Any, *given: Any) -> Any:
        """Makes the call, and returns the response. RpcError: the call ended with another status than OK."""
        return self._blocking(self._core, request, *given)

    @_one
    def with_call(self, request: Any, *given: Any) -> Any:
        """Makes the call, and returns the response and the call."""
        response, call = self._blocking(self._core.with_call, request, *given)
        return response, rendezvous._over(outcome_of(call), response)

    @_one
    def future(self, request: Any, *given: Any) -> Any:
        """Makes the call, and returns it at once."""
        return self._running(self._core.future, request, *given)


class UnaryStream(_Method, UnaryStreamMultiCallable):
    """A method with one request and a stream of responses."""

    _kind = "unary_stream"

    @_one
    def __call__(self, request: Any, *given: Any) -> Any:
        """Makes the call, and returns it at once: an iterator of the responses."""
        return self._running(self._core, request, *given)


class StreamUnary(_Method, StreamUnaryMultiCallable):
    """A method with a stream of requests and one response."""

    _kind = "stream_unary"

    @_many
    def __call__(self, request_iterator: Any, *given: Any) -> Any:
        """Makes the call, and returns the response. RpcError: the call ended with another status than OK."""
        return self._blocking(self._core, request_iterator, *given)

    @_many
    def with_call(self, request_iterator: Any, *given: Any) -> Any:
        """Makes the call, and returns the response and the call."""
        response, call = self._blocking(self._core.with_call, request_iterator, *given)
        return response, rendezvous._over(outcome_of(call), response)

    @_many
    def future(self, request_iterator: Any, *given: Any) -> Any:
        """Makes the call, and returns it at once."""
        return self._running(self._core.future, request_iterator, *given)


class StreamStream(_Method, StreamStreamMultiCallable):
    """A method with a stream of requests and a stream of responses."""

    _kind = "stream_stream"

    @_many
    def __call__(self, request_iterator: Any, *given: Any) -> Any:
        """Makes the call, and returns it at once: an iterator of the responses."""
        return self._running(self._core, request_iterator, *given)
