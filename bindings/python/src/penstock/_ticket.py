"""Tickets, with which events that wait are resolved, and these events."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t, c_void_p
from typing import Any, Iterable, Tuple

from . import _constants as c
from . import _raw
from ._arguments import Uncompressed, c_string, milliseconds, sized
from ._codec import Boxed, boxed, fill
from ._errors import StateError, check, check_hop
from ._metadata import Metadata, MetadataLike
from ._objects import own
from ._request import RequestFields
from ._status import CodeLike, DetailLike, Status, StatusLike, as_status, code_number
from ._verdict import EventKind, Verdict


class Ticket:
    """Resolves a paused or held event, once: on any thread, also before the callback has returned.

    AlreadyError: the ticket is spent. GoneError: the call has ended, or went on without it.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def resolve(self, verdict: Verdict) -> None:
        """Ends the pause with NEXT, DROP (messages), TAKE (start) or RESTART (status). InvalidArgumentError: this
        event does not allow the verdict, and the ticket stays valid."""
        check(
            _raw.penstock_ticket_resolve(self.number, int(verdict)),
            f"the ticket can't be resolved to {verdict!r}",
        )

    def resume(self) -> None:
        """Lets the event go on: NEXT."""
        check(_raw.penstock_ticket_resolve(self.number, c.NEXT), "the ticket can't be used")

    def drop(self) -> None:
        """Swallows the message: DROP."""
        check(_raw.penstock_ticket_resolve(self.number, c.DROP), "the ticket can't be used")

    def end(
        self,
        code: StatusLike,
        message: str = "",
        details: Iterable[DetailLike] = (),
        trailers: MetadataLike = None,
    ) -> None:
        """Ends the call at the hop, as `Hop.end` does."""
        status = as_status(code, message, details, trailers)
        check(_raw.penstock_ticket_end_with(self.number, status._address()), "the ticket can't be used")

    def resume_after(self, seconds: float) -> None:
        """Resumes after ``seconds``, unless the ticket is resolved before."""
        result = _raw.penstock_ticket_resolve_after(self.number, c.NEXT, milliseconds(seconds))
        check(result, "the ticket can't be used")

    def resolve_after(self, verdict: Verdict, seconds: float) -> None:
        """Like `resolve`, but after ``seconds``, unless the ticket is resolved before."""
        check(
            _raw.penstock_ticket_resolve_after(self.number, int(verdict), milliseconds(seconds)),
            f"the ticket can't be resolved to {verdict!r}",
        )

    def end_after(self, code: CodeLike, message: str, seconds: float) -> None:
        """Ends the call at the hop after ``seconds``, unless the ticket is resolved before."""
        text = c_string(message, "a message")
        result = _raw.penstock_ticket_end_after(self.number, code_number(code), text, milliseconds(seconds))
        check(result, "the ticket can't be used")

    def event(self) -> Event:
        """The ticket's event. It may be read, and changed until the ticket is spent, by one thread at a
        time."""
        event = c_void_p()
        check(_raw.penstock_ticket_hop(self.number, byref(event)), "the ticket's event is not there")
        assert event.value is not None
        return Event(event.value, self.number)

    def __repr__(self) -> str:
        return f"<Ticket {self.number:#x}>"


class Event(RequestFields):
    """A paused or held event, with the request of its call. The object may outlive the call, but the event can be
    read and changed only until its ticket is spent; then it raises AlreadyError or GoneError."""

    __slots__ = ("__weakref__", "_handle", "_ticket")

    def __init__(self, handle: int, ticket: int) -> None:
        self._handle = handle
        self._ticket = ticket
        own(self, _raw.penstock_hop_release, handle)

    def _shown(self) -> None:
        """Guards the views of the event's parts, and lives as long as they do: once the ticket is spent, the parts
        belong to the thread that drives the runtime."""
        again = c_void_p()
        check(_raw.penstock_ticket_hop(self._ticket, byref(again)), "the event's ticket has been spent")
        _raw.penstock_hop_release(again)

    @property
    def kind(self) -> EventKind:
        """The kind of the event: START, SEND, HALF_CLOSE, HEADERS, RECEIVE or STATUS."""
        return EventKind(_raw.penstock_hop_event(self._handle))

    @property
    def metadata(self) -> Metadata:
        """The metadata of the event; see `Hop.metadata`."""
        pointer = _raw.penstock_hop_metadata(self._handle)
        if not pointer:
            raise StateError(c.E_STATE, f"there is no metadata in {self.kind.name}")
        return Metadata._view(pointer, self._shown)

    @property
    def message(self) -> Any:
        """The message; see `Hop.message`."""
        return message_of(self._handle)

    @message.setter
    def message(self, data: Any) -> None:
        set_message(self._handle, data)

    @property
    def status(self) -> Status:
        """The status; see `Hop.status`."""
        pointer = _raw.penstock_hop_status(self._handle)
        if not pointer:
            raise StateError(c.E_STATE, f"there is no status in {self.kind.name}")
        return Status._view(pointer, self._shown)


# ---- Messages of hops ----


def message_of(handle: int) -> Any:
    """The message of a hop's event: bytes, or at the object level the caller's own object. StateError: there is
    none."""
    message = _raw.penstock_hop_message(handle)
    if not message:
        raise StateError(c.E_STATE, "there is no message here")
    if Boxed.ever:
        item = boxed(_raw.penstock_message_object(message))
        if item is not None:
            return item.thing
    length = c_size_t()
    return ctypes.string_at(_raw.penstock_message_bytes(message, byref(length)), length.value)


def set_message(handle: int, data: Any) -> None:
    """Replaces the message of a hop's event."""
    functions = _raw.penstock_hop_set_message, _raw.penstock_hop_set_bytes
    put(handle, data, functions, "the message can't be replaced")


def put(handle: int, data: Any, functions: Tuple[Any, Any], words: str) -> None:
    """Passes a message to the function for messages if it is an object or `Uncompressed`, otherwise to the one for
    bytes."""
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
