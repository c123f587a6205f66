"""The keyword arguments of a call. Only this module names them, with the meaning and the check of each."""

from __future__ import annotations

import base64
import functools
import inspect
import json
import textwrap
import time
from dataclasses import dataclass, field, fields
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Tuple,
    TypeVar,
    Union,
    cast,
)

from .._handles.arguments import milliseconds, whole_number
from .._handles.metadata import Metadata, MetadataLike, MetadataValue, given_pairs
from .._handles.verdict import Idempotency, Level, level_of
from .cancel import CancelScope

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")

# An element of `interceptors=`: an interceptor, or (interceptor, priority).
Interceptors = Iterable[Union[object, Tuple[object, int]]]

# A timeout longer than this (some thirty years) counts as no timeout.
FOREVER = 1e9


def end_of(timeout: Optional[float]) -> Optional[float]:
    """The time, by the monotonic clock, at which ``timeout`` seconds from now are over; None: never. A timeout below
    0 is over now."""
    return None if timeout is None or timeout > FOREVER else time.monotonic() + max(timeout, 0)


# ---- The checks: each gives the JSON of a value, or None for a value that sets nothing ----


def _deadline(seconds: float) -> Optional[str]:
    return None if seconds > FOREVER else str(milliseconds(seconds))


def _ordered(metadata: MetadataLike) -> Optional[str]:
    """Gives metadata as JSON; None if it has pairs, whose order JSON might change: these are added one by one."""
    return _metadata(metadata) if isinstance(metadata, (str, Metadata, Mapping)) else None


def _metadata(metadata: MetadataLike) -> Optional[str]:
    """Gives metadata in any of the accepted forms as JSON. The library has checked a `Metadata`; it checks the names
    and values of the other forms when it reads the JSON."""
    if isinstance(metadata, str):
        return Metadata(metadata).json
    if isinstance(metadata, Metadata):
        return metadata.json
    if isinstance(metadata, (tuple, list, dict)) and not metadata:
        return None
    values: Dict[str, List[Any]] = {}
    for name, value in given_pairs(metadata):
        values.setdefault(name.lower(), []).append(_json_value(name.lower(), value))
    return json.dumps(values)


def _json_value(name: str, value: MetadataValue) -> Any:
    if isinstance(value, str):
        return value
    encoded = base64.b64encode(value).decode()
    if name.endswith("-bin"):
        return encoded
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": encoded}


def _credentials(credentials: object) -> str:
    """Credentials are the value of ``authorization``, or header fields. ValueError: anything else, such as grpcio's
    credentials objects, which can't be read."""
    if isinstance(credentials, str):
        return _metadata({"authorization": credentials}) or "{}"
    if isinstance(credentials, (dict, tuple, list, Metadata)):
        return _metadata(credentials) or "{}"
    raise ValueError(
        f"credentials must be the value of authorization, or header fields, not {type(credentials).__name__}"
    )


def _wait_for_ready(wait: bool) -> str:
    return "true" if wait else "false"


def _compression(compression: Any) -> str:
    if isinstance(compression, str):
        return json.dumps(compression)
    name = {"NoCompression": "identity", "Gzip": "gzip", "Deflate": "deflate"}.get(getattr(compression, "name", ""))
    if name is None:
        raise ValueError(
            'compression must be "identity", "gzip", "deflate", "zstd" or the name of a compressor, '
            f"not {compression!r}"
        )
    return f'"{name}"'


def _bytes(size: int) -> str:
    return str(whole_number(size, "a number of bytes", 0, 2**31 - 1))


def _trace(trace: int) -> str:
    if not isinstance(trace, int):
        raise TypeError(f"trace must be a number of events, not {type(trace).__name__}")
    if isinstance(trace, bool) or trace == 0:
        return "true" if trace else "false"
    return f'{{"events": {int(trace)}}}'


def _idempotency(idempotency: Idempotency) -> str:
    return f'"{Idempotency(idempotency).name.lower()}"'


# ---- The table ----


def _about(option: Optional[str], check: Optional[Callable[[Any], Optional[str]]], doc: str) -> Dict[str, Any]:
    """Describes a keyword: the library's option that it becomes, its check, and its meaning."""
    return {"option": option, "check": check, "doc": doc}


@dataclass(eq=False, repr=False)
class CallKeywords:
    """The keyword arguments of a call, checked when its options are made."""

    timeout: Optional[float] = field(
        default=None,
        metadata=_about("deadline_ms", _deadline, "seconds until the call's deadline. None: the channel's, or none"),
    )
    metadata: MetadataLike = field(
        default=None, metadata=_about("metadata", _ordered, "the request's metadata: pairs, a mapping or JSON")
    )
    credentials: object = field(
        default=None,
        metadata=_about(
            "credentials",
            _credentials,
            "the value of ``authorization``, or header fields as in ``metadata``; sent over TLS only: without TLS "
            "the call ends with UNAUTHENTICATED",
        ),
    )
    wait_for_ready: Optional[bool] = field(
        default=None,
        metadata=_about(
            "wait_for_ready",
            _wait_for_ready,
            "whether the call waits for a connection, however long it takes. None: as the channel's options say",
        ),
    )
    compression: Any = field(
        default=None,
        metadata=_about(
            "compression",
            _compression,
            '``"identity"``, ``"gzip"``, ``"deflate"``, ``"zstd"``, the name of a `Compressor` of the channel, or of '
            "``grpc.Compression``. None: the channel's",
        ),
    )
    compression_min_bytes: Optional[int] = field(
        default=None,
        metadata=_about(
            "compression_min_bytes",
            _bytes,
            "the size from which messages are compressed, if the call compresses, even where that makes them longer; "
            "0: every message. None: as the channel's options say; without such an option, a message is compressed "
            "where that makes it smaller",
        ),
    )
    max_receive_message_bytes: Optional[int] = field(
        default=None,
        metadata=_about(
            "max_receive_message_bytes",
            _bytes,
            "the size limit of one received message, after decompression. None: the channel's",
        ),
    )
    interceptors: Interceptors = field(
        default=(),
        metadata=_about(
            None,
            None,
            "the interceptors of this call alone: each an interceptor, or (interceptor, priority); they are sorted "
            "together with those of the channel and its runtime",
        ),
    )
    trace: Optional[int] = field(
        default=None,
        metadata=_about(
            "trace",
            _trace,
            "how many of the latest events the call's trace keeps: 1 to 65536. True: 256. 0 or False: no trace. "
            "None: as the channel's options say",
        ),
    )
    idempotency: Optional[Idempotency] = field(
        default=None,
        metadata=_about(
            "idempotency",
            _idempotency,
            "an `Idempotency`, which interceptors read as ``hop.idempotency``; with NO_SIDE_EFFECTS Connect calls a "
            "unary method by HTTP GET. None: UNKNOWN",
        ),
    )
    content_subtype: Optional[str] = field(
        default=None,
        metadata=_about(
            "content_subtype",
            json.dumps,
            'the name of the messages\' encoding in the content-type, such as ``"json"``. None: that of the '
            "channel's ``codec``, or its option ``content_subtype``",
        ),
    )
    cancel_scope: Optional[CancelScope] = field(
        default=None,
        metadata=_about(None, None, "a `CancelScope`, with which any thread can cancel the call"),
    )
    max_send_message_bytes: Optional[int] = field(
        default=None,
        metadata=_about("max_send_message_bytes", _bytes, "the size limit of one sent message. None: the channel's"),
    )
    authority: Optional[str] = field(
        default=None,
        metadata=_about("authority", json.dumps, "the authority of the request. None: the channel's"),
    )
    send_buffer_bytes: Optional[int] = field(
        default=None,
        metadata=_about(
            "send_buffer_bytes",
            _bytes,
            "the size of the buffer in which sent messages wait until the transport takes them; one message always "
            "has room. None: 262144, and 655360 in a client stream as long as fewer than 16 messages wait",
        ),
    )

    def __post_init__(self) -> None:
        if self.cancel_scope is not None and not isinstance(self.cancel_scope, CancelScope):
            raise TypeError(f"cancel_scope must be a CancelScope, not {type(self.cancel_scope).__name__}")
        if self.interceptors != ():
            self.interceptors = tuple(self.interceptors)

    @property
    def pairs(self) -> Iterator[Tuple[str, MetadataValue]]:
        """The metadata that `options` leaves out."""
        return given_pairs(() if isinstance(self.metadata, (str, Metadata, Mapping)) else self.metadata)

    @property
    def sees_objects(self) -> bool:
        """Whether one of the call's own interceptors is at the object level."""
        return any(
            level_of(item[0] if isinstance(item, tuple) else item) != Level.BYTES for item in self.interceptors
        )

    def options(self) -> str:
        """The library's options for the call, as JSON."""
        # With "interruptible" a signal ends a wait, so that Ctrl-C works. It can be always on, because `Waiters.wait`
        # starts such a wait again.
        text = '{"interruptible": true'
        for keyword, value in self.__dict__.items():
            if value is not None and keyword in _OPTIONS:
                option, check = _OPTIONS[keyword]
                checked = check(value)
                if checked is not None:
                    text += f', "{option}": {checked}'
        return text + "}"


_OPTIONS = {
    keyword.name: (keyword.metadata["option"], keyword.metadata["check"])
    for keyword in fields(CallKeywords)
    if keyword.metadata["option"] is not None
}
_DOC = "\n".join(
    textwrap.fill(f"``{keyword.name}``: {keyword.metadata['doc']}.", 100, subsequent_indent="    ")
    for keyword in fields(CallKeywords)
)


# ---- The arguments of the functions that make calls ----


@dataclass(eq=False, repr=False)
class _Request:
    request: Any


@dataclass(eq=False, repr=False)
class _Requests:
    request_iterator: Optional[Iterable[Any]] = None


@dataclass(eq=False, repr=False)
class RequestArguments(CallKeywords, _Request):
    """The arguments of a call with one request."""


@dataclass(eq=False, repr=False)
class RequestsArguments(CallKeywords, _Requests):
    """The arguments of a call with any number of requests."""


_TIMEOUT = {"timeout"}
S = TypeVar("S")
A = TypeVar("A")
R = TypeVar("R")


def _maker(arguments: Callable[P, A]) -> Callable[[Tuple[Any, ...], Dict[str, Any]], A]:
    """A function that makes what ``arguments(*args, **keywords)`` makes, from ``args`` and ``keywords``. It sets only
    the fields that are given, which is faster: for the others the dataclass has the defaults."""
    of_class: Any = arguments
    first, *others = (argument.name for argument in fields(of_class))
    names = frozenset(others)

    def make(args: Tuple[Any, ...], keywords: Dict[str, Any]) -> A:
        if len(args) != 1 or (keywords and not keywords.keys() <= names):
            return arguments(*args, **keywords)
        made = object.__new__(of_class)
        setattr(made, first, args[0])
        if keywords:
            made.__dict__.update(keywords)
            made.__post_init__()
        return cast("A", made)

    return make


def takes(
    arguments: Callable[P, A], plain: Optional[Callable[..., Any]] = None
) -> Callable[[Callable[[S, A], R]], Callable[Concatenate[S, P], R]]:
    """Decorates a method that gets one object of the dataclass ``arguments``: callers pass the fields of that class
    as arguments instead. The new signature names the fields, and the docstring describes the keywords. ``plain`` is
    called in place of the method if there are no arguments but the first one and ``timeout``; it returns None if the
    method has to be called after all."""

    make = _maker(arguments)

    def decorate(method: Callable[[S, A], R]) -> Callable[Concatenate[S, P], R]:
        @functools.wraps(method)
        def taking(self: S, /, *args: P.args, **keywords: P.kwargs) -> R:
            if plain is not None and len(args) == 1 and (not keywords or keywords.keys() == _TIMEOUT):
                made: Optional[R] = plain(self, *args, **keywords)
                if made is not None:
                    return made
            return method(self, make(args, keywords))

        inner, outer = inspect.signature(method), inspect.signature(arguments)
        of_self = next(iter(inner.parameters.values()))
        taking.__signature__ = outer.replace(  # type: ignore[attr-defined]
            parameters=[of_self, *outer.parameters.values()], return_annotation=inner.return_annotation
        )
        taking.__doc__ = f"{inspect.getdoc(method)}\n\n{_DOC}"
        return taking

    return decorate
