"""The events of a channel, for interceptors that have ``on_connection``."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Optional

from .._raw import constants as c


class ConnectionEventKind(enum.IntEnum):
    """The kinds of events that `Interceptor.on_connection` gets."""

    RESOLVING = c.CONNECTION_RESOLVING
    """The channel asks for the addresses of its name."""
    UNRESOLVED = c.CONNECTION_UNRESOLVED
    """The name could not be resolved."""
    CONNECTING = c.CONNECTION_CONNECTING
    """An attempt to connect to the address begins."""
    SECURED = c.CONNECTION_SECURED
    """TLS is established on the new connection."""
    READY = c.CONNECTION_READY
    """The connection takes calls."""
    DRAINING = c.CONNECTION_DRAINING
    """The connection takes no new calls; those on it go on."""
    LOST = c.CONNECTION_LOST
    """A connection that was ready has ended."""
    BACKOFF = c.CONNECTION_BACKOFF
    """Connecting failed, or the connection ended without an answer; the next attempt begins in ``seconds``."""
    SILENT = c.CONNECTION_SILENT
    """Nothing has come for ``seconds`` on a connection with calls."""
    IGNORED = c.CONNECTION_IGNORED
    """A part of the service config, which ``message`` names, can't be done."""
    HEALTHY = c.CONNECTION_HEALTHY
    """The server says that it serves: it gets calls."""
    UNHEALTHY = c.CONNECTION_UNHEALTHY
    """The server does not say that it serves: it gets no calls."""
    RESOLVED = c.CONNECTION_RESOLVED
    """The addresses of the name are known; ``message`` has their number."""
    IDLE = c.CONNECTION_IDLE
    """The channel closes its connections, until the next call."""
    UNREACHABLE = c.CONNECTION_UNREACHABLE
    """No address can be reached: calls fail, or wait if they may."""
    POLICY = c.CONNECTION_POLICY
    """The load balancing policy changes to the one that ``message`` names."""
    RETRY = c.CONNECTION_RETRY
    """The call is sent again by its retry policy, in ``seconds``."""
    THROTTLED = c.CONNECTION_THROTTLED
    """The call is not sent again, because most requests have failed lately."""
    EJECTED = c.CONNECTION_EJECTED
    """Outlier detection has ejected the server: it gets no calls."""
    RESTORED = c.CONNECTION_RESTORED
    """The server that was ejected gets calls again."""
    SLOW_CALLBACK = c.CONNECTION_SLOW_CALLBACK
    """A callback has kept its thread for ``seconds``."""
    TLS_RELOADED = c.CONNECTION_TLS_RELOADED
    """Files of TLS have changed and were read again; ``message`` names them. Later connections use them."""
    TLS_KEPT = c.CONNECTION_TLS_KEPT
    """A file of TLS has changed but can't be used, for the reason in ``message``: what was read before stays."""


class EventLevel(enum.IntEnum):
    """How much an operator has to mind an event. Each kind of event has one level."""

    DEBUG = c.EVENT_DEBUG
    """The normal course of a connection or a call."""
    INFO = c.EVENT_INFO
    """A change that lasts, such as a new connection."""
    WARNING = c.EVENT_WARNING
    """It may explain calls that fail or are slow."""
    ERROR = c.EVENT_ERROR
    """Calls fail, unless they may wait."""


@dataclass(frozen=True)
class ConnectionEvent:
    """An event of a channel, as `Interceptor.on_connection` gets it."""

    kind: ConnectionEventKind
    target: str
    """The channel's target, as the program gave it."""
    address: Optional[str]
    """The server's address, such as "192.0.2.1:443"; None: the event is about the look-up of the target's name, not
    about one address."""
    message: Optional[str]
    """Further information in words, such as the reason of a failure; None if there is none."""
    seconds: float
    """With `BACKOFF` and `RETRY`, the time until the next attempt; with `SILENT`, the time without data; with
    `SLOW_CALLBACK`, how long the callback took; otherwise 0."""
    tls_version: Optional[str]
    """The version of TLS, such as "TLSv1.3". This field and the next two are None except with `SECURED`."""
    tls_cipher: Optional[str]
    tls_alpn: Optional[str]
    protocol: Optional[str] = None
    """The protocol of the calls, such as "connect". This field and the next one are None except with `READY`."""
    http: Optional[str] = None
    """The version of HTTP, "2" or "1.1"."""
    level: EventLevel = EventLevel.INFO
    call: Optional[int] = None
    """The id of the call. This field and the next one are None except with `RETRY`, `THROTTLED` and
    `SLOW_CALLBACK`."""
    method: Optional[str] = None
    interceptor: Optional[str] = None
    """With `SLOW_CALLBACK`, the interceptor's name: that of its class, unless it has another. None: a callback of the
    call itself, or the picker."""
    callback: Optional[str] = None
    """With `SLOW_CALLBACK`, the callback, such as "on_headers"."""
    json: str = "{}"
    """The event as a line of JSON, for logs; docs/operating.md has its fields."""


def _text(given: Optional[bytes]) -> Optional[str]:
    return None if given is None else given.decode("utf-8", "replace")


def event_from(raw: Any) -> Optional[ConnectionEvent]:
    """The event of a `penstock_connection_event`; None if only a newer library knows its kind."""
    if raw.kind not in ConnectionEventKind._value2member_map_:
        return None
    return ConnectionEvent(
        ConnectionEventKind(raw.kind),
        _text(raw.target) or "",
        _text(raw.address),
        _text(raw.message),
        raw.ms / 1000,
        _text(raw.tls_version),
        _text(raw.tls_cipher),
        _text(raw.tls_alpn),
        _text(raw.protocol),
        _text(raw.http),
        EventLevel(raw.level),
        raw.call or None,
        _text(raw.method),
        _text(raw.interceptor),
        _text(raw.callback),
        _text(raw.json) or "{}",
    )
