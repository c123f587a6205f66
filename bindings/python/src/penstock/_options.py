"""The options of one call: from grpcio's keyword arguments to the library's parsed options."""

from __future__ import annotations

import base64
import json
from ctypes import byref, c_void_p
from typing import Any, Dict, List, Optional, Tuple

from . import _raw
from ._arguments import c_string, milliseconds
from ._codec import Codec
from ._errors import check, check_with
from ._interceptor import Interceptors, register_all
from ._metadata import Metadata, MetadataLike, MetadataValue, given_pairs
from ._objects import own
from ._verdict import Idempotency

# A timeout longer than this (some thirty years) is none.
_FOREVER = 1e9
# How many parsed options are kept for calls that say the same again.
_KEPT = 64


class CallOptions:
    """Parsed options, for any number of calls; what interceptors of one call are registered on. Owns a
    ``penstock_call_options *``."""

    __slots__ = ("__weakref__", "_has_object_level", "handle")

    def __init__(self, text: str) -> None:
        handle, error = c_void_p(), c_void_p()
        check_with(_raw.penstock_call_options_new(c_string(text, "options"), byref(handle), byref(error)), error)
        assert handle.value is not None
        self.handle: int = handle.value
        self._has_object_level = False
        own(self, _raw.penstock_call_options_release, self.handle)

    def _registry_functions(self) -> Tuple[str, int]:
        return "penstock_call_options", self.handle

    def _has_registered(self, number: int) -> None: ...

    def _has_removed(self, number: int) -> None: ...


_Key = Tuple[Optional[int], Optional[bool], Optional[str], Optional[str], Optional[str]]
_kept: Dict[_Key, CallOptions] = {}


def call_options(
    timeout: Optional[float],
    metadata: MetadataLike,
    credentials: object,
    wait_for_ready: Optional[bool],
    compression: Any,
    trace: Optional[int] = None,
    idempotency: Optional[Idempotency] = None,
    interceptors: Interceptors = (),
    *,
    codec: Optional[Codec] = None,
) -> CallOptions:
    """The options for a call. TypeError, ValueError (`InvalidArgumentError` too): an argument that is not allowed."""
    deadline_ms = _milliseconds(timeout)
    key = (
        deadline_ms,
        wait_for_ready,
        _compression_name(compression),
        None if trace is None else _trace_json(trace),
        None if idempotency is None else Idempotency(idempotency).name.lower(),
    )
    has_metadata = metadata is not None and not (isinstance(metadata, (tuple, list, dict)) and not metadata)
    if not has_metadata and credentials is None and codec is None and not interceptors:
        options = _kept.get(key)
        if options is None:
            options = CallOptions(_options_json(key, ""))
            if len(_kept) >= _KEPT:
                _kept.clear()
            _kept[key] = options
        return options
    extra = f', "metadata": {_metadata_json(metadata)}' if has_metadata else ""
    if credentials is not None:
        extra += f', "credentials": {_credentials_json(credentials)}'
    options = CallOptions(_options_json(key, extra))
    if codec is not None:
        check(_raw.penstock_call_options_set_codec(options.handle, codec.handle))
    register_all(options, interceptors)
    return options


def forget_kept_options() -> None:
    """In the child of a fork: the parsed options are the parent's."""
    _kept.clear()


def _options_json(key: _Key, extra: str) -> str:
    deadline_ms, wait, compression, trace, idempotency = key
    # Only Ctrl-C needs it, but a wait that another thread's signal ends is begun again, so it is always on.
    options: Dict[str, Any] = {"interruptible": True}
    if deadline_ms is not None:
        options["deadline_ms"] = deadline_ms
    if wait is not None:
        options["wait_for_ready"] = bool(wait)
    if compression is not None:
        options["compression"] = compression
    if trace is not None:
        extra += f', "trace": {trace}'
    if idempotency is not None:
        options["idempotency"] = idempotency
    text = json.dumps(options)
    return f"{text[:-1]}{extra}}}" if extra else text


def _milliseconds(timeout: Optional[float]) -> Optional[int]:
    if timeout is None or timeout > _FOREVER:
        return None
    return milliseconds(timeout)


def _trace_json(trace: int) -> str:
    """How many events are kept: True is the library's number, 0 and False none. It is text, as True equals 1."""
    if not isinstance(trace, int):
        raise TypeError(f"trace must be a number of events, not {type(trace).__name__}")
    if isinstance(trace, bool) or trace == 0:
        return "true" if trace else "false"
    return f'{{"events": {int(trace)}}}'


def _compression_name(compression: Any) -> Optional[str]:
    """The library's name of a name, or of a member of grpc.Compression."""
    if compression is None or compression in ("identity", "gzip"):
        return compression  # type: ignore[no-any-return]
    known = {"NoCompression": "identity", "Gzip": "gzip"}
    name = known.get(getattr(compression, "name", ""))
    if name is None:
        raise ValueError(f'compression must be "identity" or "gzip", not {compression!r}')
    return name


def _metadata_json(metadata: MetadataLike) -> str:
    """Metadata for the options. What the library has checked goes as it is, the rest is checked there."""
    if isinstance(metadata, str):
        return Metadata(metadata).json
    if isinstance(metadata, Metadata):
        return metadata.json
    values: Dict[str, List[Any]] = {}
    for name, value in given_pairs(metadata):
        values.setdefault(name.lower(), []).append(_json_value(name.lower(), value))
    return json.dumps(values)


def _credentials_json(credentials: object) -> str:
    """The value of ``authorization``, or header fields as metadata has them. grpcio's objects can't be read."""
    if isinstance(credentials, str):
        return _metadata_json({"authorization": credentials})
    if isinstance(credentials, (dict, tuple, list, Metadata)):
        return _metadata_json(credentials)
    raise ValueError(
        f"credentials must be the value of authorization, or header fields, not {type(credentials).__name__}"
    )


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
