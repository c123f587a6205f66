"""The classes of grpc.aio's interface, for where grpcio can't be imported: the same names, methods and bases."""

from __future__ import annotations

import abc
from typing import (
    Any,
    Callable,
    Collection,
    Dict,
    Generic,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    List,
    NamedTuple,
    Optional,
    Tuple,
    TypeVar,
    Union,
    ValuesView,
)

from .. import _abstract as sync
from .._server import server_function

RequestType = TypeVar("RequestType")
ResponseType = TypeVar("ResponseType")
Value = Union[str, bytes]
Metadatum = Tuple[str, Value]

# ---- Errors and the end of a stream ----


class BaseError(Exception):
    """The base of errors of usage and of the library."""


class UsageError(BaseError):
    """A method was called where it has no meaning."""


class InternalError(BaseError):
    """An error in the library."""


class AbortError(BaseError):
    """Raised in a server, of which penstock has none."""


class AioRpcError(sync.RpcError):
    """A call that ended with another status than OK."""

    def __init__(
        self,
        code: sync.StatusCode,
        initial_metadata: Optional[Metadata] = None,
        trailing_metadata: Optional[Metadata] = None,
        details: Optional[str] = None,
        debug_error_string: Optional[str] = None,
    ) -> None:
        super().__init__()
        self._code = code
        self._initial_metadata = initial_metadata
        self._trailing_metadata = trailing_metadata
        self._details = details
        self._debug_error_string = debug_error_string

    def code(self) -> sync.StatusCode:
        """The status code."""
        return self._code

    def details(self) -> Optional[str]:
        """The status message."""
        return self._details

    def initial_metadata(self) -> Optional[Metadata]:
        """The response headers."""
        return self._initial_metadata

    def trailing_metadata(self) -> Optional[Metadata]:
        """The trailers."""
        return self._trailing_metadata

    def debug_error_string(self) -> Optional[str]:
        """Code and message in one line."""
        return self._debug_error_string

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of RPC that terminated with:\n\tstatus = {self._code}\n"
            f'\tdetails = "{self._details}"\n\tdebug_error_string = "{self._debug_error_string}"\n>'
        )

    __str__ = __repr__

    def __reduce__(self) -> Tuple[Any, ...]:
        metadata = self._initial_metadata, self._trailing_metadata
        return type(self), (self._code, *metadata, self._details, self._debug_error_string)


class _EOF:
    """The end of a stream, which `read` gives in place of a message."""

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "<grpc.aio.EOF>"


EOF = _EOF()


# ---- Metadata ----


class Metadata(Collection[Metadatum]):
    """The metadata of a call: names with one value or more, each in the order in which it was added. Iteration gives
    pairs."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, *pairs: Metadatum) -> None:
        self._metadata: Dict[str, List[Value]] = {}
        for name, value in pairs:
            self.add(name, value)

    @classmethod
    def from_tuple(cls, raw_metadata: Iterable[Metadatum]) -> Metadata:
        """Metadata with these pairs."""
        return cls(*(raw_metadata or ()))

    def add(self, key: str, value: Value) -> None:
        """Adds a value behind those that the name has."""
        self._metadata.setdefault(key, []).append(value)

    def __len__(self) -> int:
        return sum(map(len, self._metadata.values()))

    def __getitem__(self, key: str) -> Value:
        values = self.get_all(key)
        if not values:
            raise KeyError(key)
        return values[0]

    def __setitem__(self, key: str, value: Value) -> None:
        self._metadata[key] = [value, *self.get_all(key)[1:]]

    def __delitem__(self, key: str) -> None:
        rest = self.get_all(key)[1:]
        if rest:
            self._metadata[key] = rest
        else:
            del self._metadata[key]

    def delete_all(self, key: str) -> None:
        """Removes a name with all its values. KeyError: it is not there."""
        del self._metadata[key]

    def __iter__(self) -> Iterator[Metadatum]:
        for name, values in self._metadata.items():
            for value in values:
                yield name, value

    def keys(self) -> KeysView[str]:
        """A view of the names."""
        return self._metadata.keys()

    def values(self) -> ValuesView[List[Value]]:
        """A view of the lists of values, one for each name."""
        return self._metadata.values()

    def items(self) -> ItemsView[str, List[Value]]:
        """A view of the names with their lists of values."""
        return self._metadata.items()

    def get(self, key: str, default: Any = None) -> Any:
        """The first value of a name."""
        values = self.get_all(key)
        return values[0] if values else default

    def get_all(self, key: str) -> List[Value]:
        """All values of a name."""
        return self._metadata.get(key, [])

    def set_all(self, key: str, values: List[Value]) -> None:
        """Replaces all values of a name."""
        self._metadata[key] = values

    def __contains__(self, key: object) -> bool:
        return key in self._metadata

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Metadata):
            return self._metadata == other._metadata
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __add__(self, other: Any) -> Metadata:
        if isinstance(other, (Metadata, tuple)):
            return Metadata(*self, *other)
        return NotImplemented

    def __repr__(self) -> str:
        return f"{type(self).__name__}({tuple(self)!r})"


# ---- Calls ----


class RpcContext(abc.ABC):
    """What both sides of a call can ask."""

    @abc.abstractmethod
    def cancelled(self) -> bool: ...

    @abc.abstractmethod
    def done(self) -> bool: ...

    @abc.abstractmethod
    def time_remaining(self) -> Optional[float]: ...

    @abc.abstractmethod
    def cancel(self) -> bool: ...

    @abc.abstractmethod
    def add_done_callback(self, callback: Callable[[Any], Any]) -> None: ...


class Call(RpcContext):
    """A call, as its caller sees it."""

    @abc.abstractmethod
    async def initial_metadata(self) -> Any: ...

    @abc.abstractmethod
    async def trailing_metadata(self) -> Any: ...

    @abc.abstractmethod
    async def code(self) -> Any: ...

    @abc.abstractmethod
    async def details(self) -> Any: ...

    @abc.abstractmethod
    async def wait_for_connection(self) -> None: ...


class UnaryUnaryCall(Generic[RequestType, ResponseType], Call):
    @abc.abstractmethod
    def __await__(self) -> Any: ...


class UnaryStreamCall(Generic[RequestType, ResponseType], Call):
    @abc.abstractmethod
    def __aiter__(self) -> Any: ...

    @abc.abstractmethod
    async def read(self) -> Any: ...


class StreamUnaryCall(Generic[RequestType, ResponseType], Call):
    @abc.abstractmethod
    async def write(self, request: Any) -> None: ...

    @abc.abstractmethod
    async def done_writing(self) -> None: ...

    @abc.abstractmethod
    def __await__(self) -> Any: ...


class StreamStreamCall(Generic[RequestType, ResponseType], Call):
    @abc.abstractmethod
    def __aiter__(self) -> Any: ...

    @abc.abstractmethod
    async def read(self) -> Any: ...

    @abc.abstractmethod
    async def write(self, request: Any) -> None: ...

    @abc.abstractmethod
    async def done_writing(self) -> None: ...


# ---- Interceptors ----


class _Fields(NamedTuple):
    method: bytes
    timeout: Optional[float]
    metadata: Optional[Metadata]
    credentials: Any
    wait_for_ready: Optional[bool]


class ClientCallDetails(_Fields, sync.ClientCallDetails):  # type: ignore[misc]
    """A call that is about to be made, as interceptors see it."""


class ClientInterceptor(abc.ABC):  # noqa: B024
    """The base of the four kinds of interceptors."""


class UnaryUnaryClientInterceptor(ClientInterceptor):
    @abc.abstractmethod
    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any: ...


class UnaryStreamClientInterceptor(ClientInterceptor):
    @abc.abstractmethod
    async def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any: ...


class StreamUnaryClientInterceptor(ClientInterceptor):
    @abc.abstractmethod
    async def intercept_stream_unary(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any: ...


class StreamStreamClientInterceptor(ClientInterceptor):
    @abc.abstractmethod
    async def intercept_stream_stream(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any: ...


# ---- Channels ----


class _MultiCallable(Generic[RequestType, ResponseType], abc.ABC):
    @abc.abstractmethod
    def __call__(self, *arguments: Any, **keywords: Any) -> Any: ...


class UnaryUnaryMultiCallable(_MultiCallable[RequestType, ResponseType]): ...


class UnaryStreamMultiCallable(_MultiCallable[RequestType, ResponseType]): ...


class StreamUnaryMultiCallable(_MultiCallable[RequestType, ResponseType]): ...


class StreamStreamMultiCallable(_MultiCallable[RequestType, ResponseType]): ...


class Channel(abc.ABC):
    """A channel, on which calls are made."""

    @abc.abstractmethod
    async def __aenter__(self) -> Any: ...

    @abc.abstractmethod
    async def __aexit__(self, *exception: object) -> Any: ...

    @abc.abstractmethod
    async def close(self, grace: Optional[float] = None) -> None: ...

    @abc.abstractmethod
    def get_state(self, try_to_connect: bool = False) -> Any: ...

    @abc.abstractmethod
    async def wait_for_state_change(self, last_observed_state: Any) -> None: ...

    @abc.abstractmethod
    async def channel_ready(self) -> None: ...

    @abc.abstractmethod
    def unary_unary(self, method: str, *arguments: Any, **keywords: Any) -> Any: ...

    @abc.abstractmethod
    def unary_stream(self, method: str, *arguments: Any, **keywords: Any) -> Any: ...

    @abc.abstractmethod
    def stream_unary(self, method: str, *arguments: Any, **keywords: Any) -> Any: ...

    @abc.abstractmethod
    def stream_stream(self, method: str, *arguments: Any, **keywords: Any) -> Any: ...


# ---- Servers, of which penstock has none ----


class Server:
    """grpc.aio's class of a server."""


class ServerInterceptor:
    """grpc.aio's class of a server's interceptor."""


class ServicerContext(Generic[RequestType, ResponseType]):
    """grpc.aio's class of a call, as its server sees it."""


server = server_function("aio.server")


def init_grpc_aio() -> None:
    """Does nothing: there is nothing to be started."""


def shutdown_grpc_aio() -> None:
    """Does nothing: channels end when they are closed."""
