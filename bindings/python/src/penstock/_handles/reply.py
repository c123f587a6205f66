"""The end of a call: the reply, and the exception for an end other than OK."""

from __future__ import annotations

import json
import sys
from types import TracebackType
from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple, Type, Union

from .. import _raw
from .arguments import c_string
from .errors import Error, NotFoundError, check
from .metadata import ReceivedMetadata, owned_text
from .objects import Raised, Value, forget, own, registry, value_at
from .status import Detail, StatusCode, find_detail, status_details, status_message

# The key of the call's values under which a hop leaves the exception that its callback raised.
EXCEPTION_KEY = b"penstock.python.exception"


def certificates(function: Callable[..., int], handle: int) -> Optional[str]:
    """The certificates that ``function`` gives for ``handle``, in PEM form; None: no connection, or no TLS."""
    try:
        return owned_text(function, handle)
    except NotFoundError:
        return None


class Values:
    """The values that the hops of a call have shared with the caller, by key. Keys can't be listed."""

    __slots__ = ("_reply",)

    def __init__(self, reply: Union[Reply, Record, None]) -> None:
        self._reply = reply

    def get(self, key: str, default: Any = None) -> Any:
        """The value that a hop or the caller has set under ``key``, or ``default``. A pointer that C has set is given
        as an int, its address."""
        return self._reply.value(c_string(key, "a key"), default) if self._reply is not None else default

    def __getitem__(self, key: str) -> Any:
        missing = object()
        value = self.get(key, missing)
        if value is missing:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        missing = object()
        return isinstance(key, str) and self.get(key, missing) is not missing


class RunningValues(Values):
    """The values of a call that may still run, as they are now. Setting a value shares it with the call's hops."""

    __slots__ = ("_call", "_keeper")

    def __init__(self, call: int, keeper: object) -> None:
        self._call = call
        self._keeper = keeper

    def get(self, key: str, default: Any = None) -> Any:
        """The value that a hop or the caller has set under ``key``, or ``default``."""
        return value_at(_raw.penstock_call_value(self._call, c_string(key, "a key")), default)

    def __setitem__(self, key: str, value: object) -> None:
        name = c_string(key, "a key")
        result = _raw.penstock_call_set_value(self._call, name, registry.add(Value(value)), forget)
        check(result, f"value {key!r} can't be set")

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        check(_raw.penstock_call_set_value(self._call, c_string(key, "a key"), None, _raw.penstock_finalizer()))


class Reply:
    """An ended call: immutable. Owns a ``penstock_reply *``."""

    __slots__ = ("__weakref__", "_handle", "raised")

    def __init__(self, handle: int) -> None:
        self._handle: int = own(self, _raw.penstock_reply_release, handle)
        left = registry.get(_raw.penstock_reply_value(handle, EXCEPTION_KEY)) if Raised.ever else None
        # The exception that a callback of the call has raised.
        self.raised = left.take() if isinstance(left, Raised) else None

    @property
    def code(self) -> StatusCode:
        return StatusCode(_raw.penstock_reply_code(self._handle))

    @property
    def details(self) -> str:
        return status_message(_raw.penstock_reply_status(self._handle))

    def headers(self) -> ReceivedMetadata:
        return ReceivedMetadata._of(_raw.penstock_reply_headers(self._handle), self, self._handle)

    def trailers(self) -> ReceivedMetadata:
        return ReceivedMetadata._of(_raw.penstock_reply_trailers(self._handle), self, self._handle)

    def status_details(self) -> List[Detail]:
        return status_details(_raw.penstock_reply_status(self._handle))

    def status_json(self) -> str:
        text: bytes = _raw.penstock_reply_status_json(self._handle)
        return text.decode()

    def stats(self) -> Dict[str, Any]:
        text: bytes = _raw.penstock_reply_stats_json(self._handle)
        stats: Dict[str, Any] = json.loads(text)
        return stats

    def peer_certificates(self) -> Optional[str]:
        return certificates(_raw.penstock_reply_peer_certificates_pem, self._handle)

    def trace(self) -> Dict[str, Any]:
        text: bytes = _raw.penstock_reply_trace_json(self._handle)
        trace: Dict[str, Any] = json.loads(text)
        return trace

    def value(self, key: bytes, default: Any = None) -> Any:
        return value_at(_raw.penstock_reply_value(self._handle, key), default)

    def __reduce__(self) -> Tuple[Any, ...]:
        texts = self.status_json(), json.dumps(self.stats()), json.dumps(self.trace())
        headers, trailers = self.headers(), self.trailers()
        certificates = self.peer_certificates()
        return Record, (self.code, self.details, headers, trailers, texts, certificates, self.status_details())


class Record:
    """What a copy of an ended call, or its pickle, has in place of the `Reply`. It has no values, which belong to the
    process."""

    raised: Optional[BaseException] = None

    def __init__(
        self,
        code: StatusCode,
        details: str,
        headers: ReceivedMetadata,
        trailers: ReceivedMetadata,
        texts: Tuple[str, str, str],
        certificates: Optional[str],
        found: List[Detail],
    ) -> None:
        self.code = code
        self.details = details
        self._headers = headers
        self._trailers = trailers
        self._status, self._stats, self._trace = texts
        self._certificates = certificates
        self._found = found

    def headers(self) -> ReceivedMetadata:
        return self._headers

    def trailers(self) -> ReceivedMetadata:
        return self._trailers

    def status_details(self) -> List[Detail]:
        return list(self._found)

    def status_json(self) -> str:
        return self._status

    def stats(self) -> Dict[str, Any]:
        stats: Dict[str, Any] = json.loads(self._stats)
        return stats

    def peer_certificates(self) -> Optional[str]:
        return self._certificates

    def trace(self) -> Dict[str, Any]:
        trace: Dict[str, Any] = json.loads(self._trace)
        return trace

    def value(self, key: bytes, default: Any = None) -> Any:
        return default


class Outcome:
    """The end of a call: the base of `RpcError`, of a stream's `Call` and of the second result of ``with_call``."""

    _code: StatusCode = StatusCode.UNKNOWN
    _details: str = ""
    _reply: Union[Reply, Record, None] = None

    def _settled(self) -> Union[Reply, Record, None]:
        """Waits for the reply; None for a call that failed before there was one."""
        return self._reply

    def code(self) -> StatusCode:
        """The status code."""
        self._settled()
        return self._code

    def details(self) -> str:
        """The status message."""
        self._settled()
        return self._details

    def initial_metadata(self) -> ReceivedMetadata:
        """The response headers; empty if there were none."""
        reply = self._settled()
        return reply.headers() if reply is not None else ReceivedMetadata()

    def trailing_metadata(self) -> ReceivedMetadata:
        """The trailers."""
        reply = self._settled()
        return reply.trailers() if reply is not None else ReceivedMetadata()

    @property
    def status_details(self) -> List[Detail]:
        """The details of the status (``grpc-status-details-bin``), in order."""
        reply = self._settled()
        return reply.status_details() if reply is not None else []

    def find_detail(self, type_url: str) -> Optional[Detail]:
        """The first detail with this type URL or type name; None if there is none."""
        return find_detail(self.status_details, type_url)

    @property
    def status_json(self) -> str:
        """The status as JSON: code, name, message, metadata (the trailers), details."""
        reply = self._settled()
        if reply is not None:
            return reply.status_json()
        view = {"code": self._code.number, "name": self._code.name, "message": self._details}
        return json.dumps({**view, "metadata": {}, "details": []})

    @property
    def stats(self) -> Dict[str, Any]:
        """The statistics: times in microseconds since the call was made, the number of attempts, counts of messages
        and bytes, the peer, TLS. Empty if the call failed before it had a reply, for example in the serializer."""
        reply = self._settled()
        return reply.stats() if reply is not None else {}

    @property
    def peer_certificates(self) -> Optional[str]:
        """The certificates that the server has sent, its own first, in PEM form; None without TLS."""
        reply = self._settled()
        return reply.peer_certificates() if reply is not None else None

    @property
    def trace(self) -> Dict[str, Any]:
        """The events at each hop; empty without the option ``trace`` of the channel or the call. See
        penstock_call_trace_json."""
        reply = self._settled()
        return reply.trace() if reply is not None else {}

    @property
    def values(self) -> Values:
        """The values that the hops of the call have shared."""
        return Values(self._settled())

    def debug_error_string(self) -> str:
        """The status, the times and the peer as one line of JSON."""
        return json.dumps({"status": json.loads(self.status_json), "stats": self.stats}, ensure_ascii=False)


class _Ended(Outcome):
    """The methods of grpc.Call whose results are fixed once a call has ended."""

    def is_active(self) -> bool:
        """Always False, because the call has ended."""
        return False

    def cancel(self) -> bool:
        """Does nothing and returns False, because the call has ended."""
        return False

    def time_remaining(self) -> Optional[float]:
        """Always None, because the call has ended."""
        return None

    def add_callback(self, callback: Callable[[], Any]) -> bool:
        """Returns False and never calls ``callback``, because the call has ended."""
        return False


class CompletedCall(_Ended):
    """A call that has ended, as the second result of ``with_call``."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._code = reply.code
        self._details = reply.details


class RpcError(_Ended, Error):
    """A call that ended with another status than OK.

    If the ``grpc`` module is loaded, the exception is a ``grpc.RpcError`` too. If an exception of an interceptor, a
    serializer or a request iterator has ended the call, ``__cause__`` is that exception. An RpcError has the methods
    of grpc.Call and of grpc.Future, because ``grpc.intercept_channel`` gives it to interceptors in place of the call.

    It can be pickled and copied. A copy has no `values` and no ``__cause__``, and is a ``grpc.RpcError`` if the
    ``grpc`` module is loaded where it is made.
    """

    def __init__(self, code: StatusCode, details: str, reply: Union[Reply, Record, None] = None) -> None:
        self._code = code
        self._details = details
        self._reply = reply
        super().__init__(code, details)

    def cancelled(self) -> bool:
        """Always False: the call has its outcome already, so nobody can cancel it."""
        return False

    def running(self) -> bool:
        """Always False, because the call has ended."""
        return False

    def done(self) -> bool:
        """Always True, because the call has ended."""
        return True

    def result(self, timeout: Optional[float] = None) -> NoReturn:
        """Raises this exception."""
        raise self

    def exception(self, timeout: Optional[float] = None) -> RpcError:
        """This exception."""
        return self

    def traceback(self, timeout: Optional[float] = None) -> Optional[TracebackType]:
        """The traceback of this exception."""
        return self.__traceback__

    def add_done_callback(self, fn: Callable[[Any], Any]) -> None:
        """Calls ``fn`` with this exception at once, because the call has ended."""
        fn(self)

    def __reduce__(self) -> Tuple[Any, ...]:
        own_names = ("_code", "_details", "_reply")
        others = {name: value for name, value in self.__dict__.items() if name not in own_names}
        return _copied_error, (self._code, self._details, self._reply), others

    def __str__(self) -> str:
        return f"{self._code.name}: {self._details}" if self._details else self._code.name

    def __repr__(self) -> str:
        return f"<penstock.RpcError {self._code.name} {self._details!r}>"


_with_grpc: Dict[type, Type[RpcError]] = {}


def _error_class() -> Type[RpcError]:
    """The class of the exception to raise: `RpcError`, or, if the grpc module is loaded now, a class derived from
    both `RpcError` and grpc.RpcError."""
    grpc_error = getattr(sys.modules.get("grpc"), "RpcError", None)
    if not isinstance(grpc_error, type) or not issubclass(grpc_error, Exception):
        return RpcError
    found = _with_grpc.get(grpc_error)
    if found is None:
        found = type("RpcError", (RpcError, grpc_error), {"__module__": "penstock", "__doc__": RpcError.__doc__})
        _with_grpc[grpc_error] = found
    return found


def _copied_error(code: StatusCode, details: str, reply: Optional[Record]) -> RpcError:
    return _error_class()(code, details, reply)


def local_error(code: StatusCode, details: str, cause: Optional[BaseException] = None) -> RpcError:
    """The exception for a call that failed on this side: it has no reply."""
    error = _error_class()(code, details)
    error.__cause__ = cause
    return error


def reply_error(reply: Reply) -> RpcError:
    """The exception for ``reply``, whose status is not OK."""
    error = _error_class()(reply.code, reply.details, reply)
    if reply.raised is not None:
        error.__cause__ = reply.raised
    return error
