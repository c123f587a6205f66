"""The classes of grpcio's interface, for where grpcio can't be imported: the same names, methods and bases."""

from __future__ import annotations

import abc
import enum
from types import TracebackType
from typing import Any, Callable, Optional, Sequence, Tuple

from .._handles.status import StatusCode as StatusCode


class FutureTimeoutError(Exception):
    """A future has not ended within the given time."""


class FutureCancelledError(Exception):
    """A future was cancelled, so it has no result."""


class RpcError(Exception):
    """The base of the exceptions that tell of a call's end."""


class ChannelConnectivity(enum.Enum):
    """The states of a channel."""

    IDLE = (0, "idle")
    CONNECTING = (1, "connecting")
    READY = (2, "ready")
    TRANSIENT_FAILURE = (3, "transient failure")
    SHUTDOWN = (4, "shutdown")


class Compression(enum.IntEnum):
    """The compression of sent messages."""

    NoCompression = 0
    Deflate = 1
    Gzip = 2


class LocalConnectionType(enum.Enum):
    """What `local_channel_credentials` allows."""

    UDS = 0
    LOCAL_TCP = 1


class Future(abc.ABC):
    """A result that comes later."""

    @abc.abstractmethod
    def cancel(self) -> bool: ...

    @abc.abstractmethod
    def cancelled(self) -> bool: ...

    @abc.abstractmethod
    def running(self) -> bool: ...

    @abc.abstractmethod
    def done(self) -> bool: ...

    @abc.abstractmethod
    def result(self, timeout: Optional[float] = None) -> Any: ...

    @abc.abstractmethod
    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]: ...

    @abc.abstractmethod
    def traceback(self, timeout: Optional[float] = None) -> Optional[TracebackType]: ...

    @abc.abstractmethod
    def add_done_callback(self, fn: Callable[[Any], Any]) -> None: ...


class RpcContext(abc.ABC):
    """What both sides of a call can ask."""

    @abc.abstractmethod
    def is_active(self) -> bool: ...

    @abc.abstractmethod
    def time_remaining(self) -> Optional[float]: ...

    @abc.abstractmethod
    def cancel(self) -> Any: ...

    @abc.abstractmethod
    def add_callback(self, callback: Callable[[], Any]) -> bool: ...


class Call(RpcContext):
    """A call, as its caller sees it."""

    @abc.abstractmethod
    def initial_metadata(self) -> Any: ...

    @abc.abstractmethod
    def trailing_metadata(self) -> Any: ...

    @abc.abstractmethod
    def code(self) -> Any: ...

    @abc.abstractmethod
    def details(self) -> Any: ...


class Status:
    """A status: code, details and trailing_metadata."""

    code: Any
    details: Optional[str]
    trailing_metadata: Any


# ---- Interceptors ----


class ClientCallDetails:
    """A call that is about to be made, as interceptors see it."""

    method: str
    timeout: Optional[float]
    metadata: Any
    credentials: Any
    wait_for_ready: Optional[bool]
    compression: Any


class UnaryUnaryClientInterceptor(abc.ABC):
    @abc.abstractmethod
    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any: ...


class UnaryStreamClientInterceptor(abc.ABC):
    @abc.abstractmethod
    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any: ...


class StreamUnaryClientInterceptor(abc.ABC):
    @abc.abstractmethod
    def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any: ...


class StreamStreamClientInterceptor(abc.ABC):
    @abc.abstractmethod
    def intercept_stream_stream(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any: ...


# ---- Credentials ----


class ChannelCredentials:
    """Credentials of a channel; the functions that make them are in `penstock.grpc`."""

    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials


class CallCredentials:
    """Credentials of a call; the functions that make them are in `penstock.grpc`."""

    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials


class AuthMetadataContext:
    """The call for which an `AuthMetadataPlugin` is asked: service_url and method_name."""


class AuthMetadataPluginCallback:
    """The function to which an `AuthMetadataPlugin` gives the metadata."""

    def __call__(self, metadata: Any, error: Optional[BaseException]) -> None:
        raise NotImplementedError


class AuthMetadataPlugin:
    """Gives the metadata that authenticates a call."""

    def __call__(self, context: AuthMetadataContext, callback: AuthMetadataPluginCallback) -> None:
        raise NotImplementedError


# ---- Channels ----


class UnaryUnaryMultiCallable(abc.ABC):
    @abc.abstractmethod
    def __call__(self, request: Any, *arguments: Any, **keywords: Any) -> Any: ...

    @abc.abstractmethod
    def with_call(self, request: Any, *arguments: Any, **keywords: Any) -> Tuple[Any, Any]: ...

    @abc.abstractmethod
    def future(self, request: Any, *arguments: Any, **keywords: Any) -> Any: ...


class UnaryStreamMultiCallable(abc.ABC):
    @abc.abstractmethod
    def __call__(self, request: Any, *arguments: Any, **keywords: Any) -> Any: ...


class StreamUnaryMultiCallable(abc.ABC):
    @abc.abstractmethod
    def __call__(self, request_iterator: Any, *arguments: Any, **keywords: Any) -> Any: ...

    @abc.abstractmethod
    def with_call(self, request_iterator: Any, *arguments: Any, **keywords: Any) -> Tuple[Any, Any]: ...

    @abc.abstractmethod
    def future(self, request_iterator: Any, *arguments: Any, **keywords: Any) -> Any: ...


class StreamStreamMultiCallable(abc.ABC):
    @abc.abstractmethod
    def __call__(self, request_iterator: Any, *arguments: Any, **keywords: Any) -> Any: ...


class Channel(abc.ABC):
    """A channel, on which calls are made."""

    @abc.abstractmethod
    def subscribe(self, callback: Callable[[Any], Any], try_to_connect: Optional[bool] = False) -> None: ...

    @abc.abstractmethod
    def unsubscribe(self, callback: Callable[[Any], Any]) -> None: ...

    @abc.abstractmethod
    def unary_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: Optional[bool] = False,
    ) -> Any: ...

    @abc.abstractmethod
    def unary_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: Optional[bool] = False,
    ) -> Any: ...

    @abc.abstractmethod
    def stream_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: Optional[bool] = False,
    ) -> Any: ...

    @abc.abstractmethod
    def stream_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: Optional[bool] = False,
    ) -> Any: ...

    @abc.abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, *exception: object) -> Any:
        raise NotImplementedError


NAMES: Sequence[str] = (
    "AuthMetadataContext",
    "AuthMetadataPlugin",
    "AuthMetadataPluginCallback",
    "Call",
    "CallCredentials",
    "Channel",
    "ChannelConnectivity",
    "ChannelCredentials",
    "ClientCallDetails",
    "Compression",
    "Future",
    "FutureCancelledError",
    "FutureTimeoutError",
    "LocalConnectionType",
    "RpcContext",
    "RpcError",
    "Status",
    "StatusCode",
    "StreamStreamClientInterceptor",
    "StreamStreamMultiCallable",
    "StreamUnaryClientInterceptor",
    "StreamUnaryMultiCallable",
    "UnaryStreamClientInterceptor",
    "UnaryStreamMultiCallable",
    "UnaryUnaryClientInterceptor",
    "UnaryUnaryMultiCallable",
)
