"""Tickets, which end the wait of an event, and the events that wait."""

from __future__ import annotations

from ctypes import byref, c_void_p
from typing import Any, Iterable

from .. import _raw
from .._handles.arguments import milliseconds
from .._handles.errors import check
from .._handles.metadata import Metadata, MetadataLike
from .._handles.objects import own
from .._handles.status import DetailLike, Status, StatusLike, as_status
from .._handles.verdict import EventKind, Verdict
from .._raw import constants as c
from .events import message_of, metadata_of, set_message, status_of
from .request import RequestFields


class Ticket:
    """Ends the wait of a paused or held event, once: on any thread, also before the callback has returned.

    AlreadyError: the ticket is spent. GoneError: the call has ended, or the event has gone on without the ticket.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def resolve(self, verdict: Verdict) -> None:
        """Ends the event's wait with NEXT, DROP (messages), TAKE (start) or RESTART (status). InvalidArgumentError:
        this event does not allow the verdict; the ticket stays valid."""
        check(
            _raw.penstock_ticket_resolve(self.number, int(verdict)),
            f"the ticket can't be resolved to {verdict!r}",
        )

    def resume(self) -> None:
        """Lets the event go on: NEXT."""
        check(_raw.penstock_ticket_resolve(self.number, c.NEXT), "the ticket can't be used")

    def drop(self) -> None:
        """Discards the message: DROP."""
        check(_raw.penstock_ticket_resolve(self.number, c.DROP), "the ticket can't be used")

    def end(
        self,
        code: StatusLike,
        message: str = "",
        details: Iterable[DetailLike] = (),
        trailers: MetadataLike = None,
    ) -> None:
        """Ends the call at the hop, as `Hop.end` does, whatever the callback returns that has taken the ticket."""
        status = as_status(code, message, details, trailers)
        check(_raw.penstock_ticket_end_with(self.number, status._address()), "the ticket can't be used")

    def resume_after(self, seconds: float) -> None:
        """Lets the event go on after ``seconds``, unless the ticket is resolved before."""
        result = _raw.penstock_ticket_resolve_after(self.number, c.NEXT, milliseconds(seconds))
        check(result, "the ticket can't be used")

    def resolve_after(self, verdict: Verdict, seconds: float) -> None:
        """Ends the event's wait with the verdict after ``seconds``, unless the ticket is resolved before."""
        check(
            _raw.penstock_ticket_resolve_after(self.number, int(verdict), milliseconds(seconds)),
            f"the ticket can't be resolved to {verdict!r}",
        )

    def event(self) -> Event:
        """The ticket's event. Until the ticket is spent it may be read and changed, by one thread at a time."""
        event = c_void_p()
        check(_raw.penstock_ticket_hop(self.number, byref(event)), "the ticket's event is not there")
        assert event.value is not None
        return Event(event.value, self.number)

    def __repr__(self) -> str:
        return f"<Ticket {self.number:#x}>"


class Event(RequestFields):
    """A paused or held event, with the request of its call. It can be read and changed until its ticket is spent;
    afterwards its methods raise AlreadyError or GoneError. The object itself may outlive the call."""

    __slots__ = ("__weakref__", "_handle", "_ticket")

    def __init__(self, handle: int, ticket: int) -> None:
        self._handle: int = own(self, _raw.penstock_hop_release, handle)
        self._ticket = ticket

    def _shown(self) -> None:
        """Raises once the ticket is spent. The views of the event's metadata and status call this method before each
        use, and keep this object. Once the ticket is spent, only the thread that drives the runtime may use metadata
        and status."""
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
        return metadata_of(self._handle, self._shown)

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
        return status_of(self._handle, self._shown)
