"""Verdicts that callbacks return, the kinds of calls, and the levels."""

from __future__ import annotations

import enum
from typing import Iterable, Union

from .._raw import constants as c


class Verdict(enum.IntEnum):
    """The verdict that a callback returns, which decides what becomes of the event. None is NEXT."""

    NEXT = c.NEXT
    """Pass the event on."""
    PAUSE = c.PAUSE
    """Stop this event and its lane until the ticket is resolved; later events of the lane wait unseen."""
    HOLD = c.HOLD
    """Keep this event at the hop; later events of its lane are still shown. It waits for its ticket, or, if none was
    taken, for the hop's next NEXT in the lane."""
    DROP = c.DROP
    """Swallow this message; from ``on_pick``: refuse this address."""
    TAKE = c.TAKE
    """From ``on_start``: answer the call here; neither the hops below nor the server see it."""
    RESTART = c.RESTART
    """From ``on_status``: begin the call again below this hop; needs ``replay_bytes``."""
    SKIP = c.SKIP
    """From ``create``: the interceptor takes no part in this call."""


class Kind(enum.IntEnum):
    """The four kinds of calls."""

    UNARY = c.KIND_UNARY
    CLIENT_STREAM = c.KIND_CLIENT_STREAM
    SERVER_STREAM = c.KIND_SERVER_STREAM
    BIDI = c.KIND_BIDI


# Which kinds of calls: one, or several; what None means is said where it is used.
Kinds = Union[Kind, Iterable[Kind], None]


class Connectivity(enum.IntEnum):
    """The states of a channel ("gRPC Connectivity Semantics and API")."""

    IDLE = c.CONNECTIVITY_IDLE
    """No connection, and none is being made; the next call begins one."""
    CONNECTING = c.CONNECTIVITY_CONNECTING
    """A connection is being made; calls wait."""
    READY = c.CONNECTIVITY_READY
    TRANSIENT_FAILURE = c.CONNECTIVITY_TRANSIENT_FAILURE
    """No address could be connected to; calls fail, unless they wait for a connection."""
    SHUTDOWN = c.CONNECTIVITY_SHUTDOWN
    """Closed for good."""


class Level(enum.IntEnum):
    """The place of an interceptor relative to the codec."""

    BYTES = c.LEVEL_BYTES
    """Below the codec: messages are bytes, as they go out and come in."""
    OBJECT = c.LEVEL_OBJECT
    """Above the codec: messages are the caller's objects."""
    BOTH = c.LEVEL_BOTH
    """Both: the interceptor has one hop above the codec, and one below."""


def level_of(interceptor: object) -> Level:
    """The value of the interceptor's ``level``; `Level.BYTES` if it has none."""
    return Level(getattr(interceptor, "level", Level.BYTES))


class Idempotency(enum.IntEnum):
    """The idempotency of a method: how safe it is to call it twice."""

    UNKNOWN = c.IDEMPOTENCY_UNKNOWN
    IDEMPOTENT = c.IDEMPOTENCY_IDEMPOTENT
    NO_SIDE_EFFECTS = c.IDEMPOTENCY_NO_SIDE_EFFECTS


class EventKind(enum.IntEnum):
    """The events that `Hop.event` names. CREATE, DESTROY and PICK stand for the callbacks that bring no event of the
    call."""

    NONE = c.EVENT_NONE
    START = c.EVENT_START
    SEND = c.EVENT_SEND
    HALF_CLOSE = c.EVENT_HALF_CLOSE
    HEADERS = c.EVENT_HEADERS
    RECEIVE = c.EVENT_RECEIVE
    STATUS = c.EVENT_STATUS
    CANCEL = c.EVENT_CANCEL
    DEMAND = c.EVENT_DEMAND
    SENT = c.EVENT_SENT
    CREATE = c.EVENT_CREATE
    DESTROY = c.EVENT_DESTROY
    PICK = c.EVENT_PICK
