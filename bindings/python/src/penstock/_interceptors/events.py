"""The contents of a hop's event, for every object that shows one: metadata, a message, a status."""

from __future__ import annotations

from ctypes import c_void_p
from typing import Any, Callable, Tuple

from .. import _raw
from .._calls.codec import Boxed, content, fill
from .._handles.arguments import Uncompressed, sized
from .._handles.errors import StateError, check_hop
from .._handles.metadata import Metadata
from .._handles.status import Status
from .._handles.verdict import EventKind
from .._raw import constants as c


def metadata_of(handle: int, guard: Callable[[], object]) -> Metadata:
    """The metadata of a hop's event; ``guard``: see `Metadata._view`. StateError: there is none."""
    return Metadata._view(_there(handle, _raw.penstock_hop_metadata(handle), "metadata"), guard)


def status_of(handle: int, guard: Callable[[], object]) -> Status:
    """The status of a hop's event; ``guard``: see `Metadata._view`. StateError: there is none."""
    return Status._view(_there(handle, _raw.penstock_hop_status(handle), "status"), guard)


def _there(handle: int, pointer: Any, what: str) -> int:
    if not pointer:
        raise StateError(c.E_STATE, f"there is no {what} in {EventKind(_raw.penstock_hop_event(handle)).name}")
    return int(pointer)


def message_of(handle: int) -> Any:
    """The message of a hop's event: bytes, or at the object level the caller's own object. StateError: there is
    none."""
    message = _raw.penstock_hop_message(handle)
    if not message:
        raise StateError(c.E_STATE, "there is no message here")
    return content(message)


def set_message(handle: int, data: Any) -> None:
    """Replaces the message of a hop's event."""
    functions = _raw.penstock_hop_set_message, _raw.penstock_hop_set_bytes
    put(handle, data, functions, "the message can't be replaced")


def put(handle: int, data: Any, functions: Tuple[Any, Any], words: str) -> None:
    """Passes ``data`` to the second of the two C functions, which takes bytes; at the object level, and for an
    `Uncompressed`, to the first, which takes a ``penstock_message *``."""
    put_message, put_bytes = functions
    codec = _raw.penstock_hop_codec(handle) if Boxed.ever else None
    if codec is None and not isinstance(data, Uncompressed):
        check_hop(handle, put_bytes(handle, *sized(data)), words)
        return
    message = c_void_p()
    try:
        fill(message, data, codec)
        check_hop(handle, put_message(handle, message), words)
    finally:
        _raw.penstock_message_release(message)
